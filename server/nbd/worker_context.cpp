#include "server/nbd/worker_context.hpp"

#include <boost/asio/post.hpp>
#include <chrono>
#include <new>
#include <thread>

namespace gpunbd::server {

void WorkerContext::wake() noexcept {
    while (true) {
        try {
            boost::asio::post(io, [] {});
            return;
        } catch (const std::bad_alloc&) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
}

}  // namespace gpunbd::server
