// Package httpsync serves POST /sync, the way to the data for clients that cannot hold
// a WebSocket: one request carries writes, maps to bring up to date and queries, one
// response their verdicts, deltas and results. Nothing is kept between requests.
//
// What fails on its own is an entry of the response's errors; the HTTP status only
// says whether the request as a whole was understood.
package httpsync
