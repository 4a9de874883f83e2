// Returns the memory of a finished burst of requests or connections to the system. The C library
// keeps freed memory that lies below memory in use. malloc_trim() holds the lock of an arena for
// milliseconds, so it runs after the burst and on the main thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "server/daemon/poll.hpp"
#include "server/daemon/service.hpp"
#include "server/nbd/worker.hpp"

namespace gpunbd::server {

class HeapTrim final : public Service {
 public:
    using Workers = std::vector<std::unique_ptr<Worker>>;

    // The heap is trimmed after this many connections have ended; each took 10 to 50 KiB.
    static constexpr std::uint32_t connections_of_a_burst = 128;
    static constexpr std::chrono::seconds interval{2};  // between two checks

    using Trim = std::function<void()>;  // is called on the thread of `io`
    // `io` and `workers` must outlive this object.
    HeapTrim(boost::asio::io_context& io, const Workers& workers, Trim trim);
    // malloc_trim(0), for `trim`.
    static void trim_heap() noexcept;

    void start() override { poll_.start(); }
    void resume() override { poll_.resume(); }
    // Trims if a burst has ended since the last trim.
    void check();

 private:
    boost::asio::io_context& io_;
    const Workers& workers_;
    const Trim trim_;
    Poll poll_;
    std::uint32_t most_connections_ = 0;  // since the last trim
};

}  // namespace gpunbd::server
