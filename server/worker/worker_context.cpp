#include "server/worker/worker_context.hpp"

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace gpunbd::server {

void WorkerContext::wake() noexcept {
    while (true) {
        try {
            // Not from what Asio keeps for its thread, where it would take the room of what waits
            // for sockets, and that be allocated each time.
            boost::asio::post(io, boost::asio::bind_allocator(std::allocator<void>(), [] {}));
            return;
        } catch (const std::bad_alloc&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

}  // namespace gpunbd::server
