#include "server/daemon/heap_trim.hpp"

#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <new>
#include <utility>

namespace gpunbd::server {

HeapTrim::HeapTrim(boost::asio::io_context& io, const Workers& workers, Trim trim)
    : io_(io), workers_(workers), trim_(std::move(trim)), poll_(io, interval, [this] {
          try {
              check();
          } catch (const std::bad_alloc&) {
              // The next check retries.
          }
          return true;
      }) {}

void HeapTrim::trim_heap() noexcept { ::malloc_trim(0); }

void HeapTrim::check() {
    std::uint32_t connections = 0;
    for (const auto& worker : workers_) connections += worker->connections();
    most_connections_ = std::max(most_connections_, connections);
    if (connections + connections_of_a_burst <= most_connections_) {
        most_connections_ = connections;
        trim_();
    }
    for (const auto& worker : workers_) {
        if (!worker->budget_had_burst()) continue;
        worker->post([&io = io_, trim = trim_](WorkerContext& its) {
            try {
                if (its.budget.end_burst()) boost::asio::post(io, trim);
            } catch (const std::bad_alloc&) {
                // Trimmed after the next burst.
            }
        });
    }
}

}  // namespace gpunbd::server
