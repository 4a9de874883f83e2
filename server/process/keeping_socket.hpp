// The Unix socket by which `gpunbd kept` asks: a line comes, a text goes. For this user and root;
// what is asked and answered is not known here.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/listening/listener.hpp"

namespace gpunbd::server {

struct KeepingLimits {
    std::size_t askers = 8;                  // at once; one more is turned away
    std::size_t request = 8192;              // bytes, with the end of the line
    std::chrono::milliseconds time{30'000};  // for all of it
};

class KeepingSocket {
 public:
    // To a request, without the end of its line. Nothing: not now; it is asked again soon, until
    // the time is over. On the thread of `io`.
    using Answer = std::function<std::optional<std::string>(const std::string& request)>;

    // Throws AddressError, or std::runtime_error. `io` outlives it.
    KeepingSocket(boost::asio::io_context& io, const std::string& path, Answer answer,
                  const KeepingLimits& limits = {});
    // Who is being answered is cut off.
    ~KeepingSocket();
    KeepingSocket(const KeepingSocket&) = delete;
    KeepingSocket& operator=(const KeepingSocket&) = delete;

 private:
    struct Shared;
    struct Asker;
    void accepted(int fd, const Peer& peer);

    boost::asio::io_context& io_;
    const std::shared_ptr<Shared> shared_;
    const std::unique_ptr<Listener> listener_;
};

}  // namespace gpunbd::server
