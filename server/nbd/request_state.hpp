// The life of a request from the gate to the last byte of its answer. Every request has exactly one
// of these states, in Reply::state().
#pragma once

#include <cstdint>

namespace gpunbd::server {

//                     READ                                              WRITE
//
//   start() ----+-- answered in chunks, or alone --+             start() --> receiving -->
//   discarding
//               |                                  |                           |    |          |
//               +--> waiting ----------------------+--> executing <------------+    |          |
//                                                       |    |                      |          |
//                                          staged <-----+    |                 handed_over     |
//                                            |               |                      |          |
//                                            +--> replying --+--> answered <--------+----------+
//                                                     |
//                                                     +--> broken
//
// Any state becomes `abandoned` when the connection closes before the answer is queued.
enum class RequestState : std::uint8_t {
    idle,         // in its pool
    waiting,      // READ in one piece: starts once all READs in chunks have been answered
    receiving,    // WRITE: its payload is arriving
    discarding,   // WRITE: it has failed, and the rest of its payload is dropped
    executing,    // the transfer runs and may need more memory
    staged,       // READ: the transfer has all the memory that it needs
    replying,     // READ: the first reply header is queued, and more data follows
    answered,     // the whole answer is queued
    handed_over,  // WRITE: another process receives the rest of its payload
    broken,     // READ: it failed after the header of its only piece, so the connection must close
    abandoned,  // it gets no answer; copies in flight may still run
};

// The reply of a request in this state may still be added to.
constexpr bool needs_reply(RequestState state) { return state < RequestState::answered; }

}  // namespace gpunbd::server
