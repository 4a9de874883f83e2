// One wait for a socket at a time, whose handler is stored in memory of its own.
#pragma once

#include <memory>
#include <utility>

#include "server/base/wait_memory.hpp"
#include "server/net/transport/transport.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

class SocketWait {
 public:
    bool pending() const { return pending_; }
    // `handler` calls ended() first. It is called with an error if the socket is closed.
    template <typename Handler>
    void begin(Transport& transport, Transport::Wait direction, Handler handler) {
        GPUNBD_ASSERT(!pending_, "one wait for a socket is in progress at a time");
        transport.wait(direction, within(memory_, std::move(handler)));
        pending_ = true;
    }
    void ended() {
        GPUNBD_ASSERT(pending_, "a wait ends once");
        pending_ = false;
    }

 private:
    const std::shared_ptr<WaitMemory> memory_ = std::make_shared<WaitMemory>();
    bool pending_ = false;
};

}  // namespace gpunbd::server
