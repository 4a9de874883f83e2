// Passes calls from other threads to the thread of the admin endpoint. It may outlive the endpoint:
// later calls are dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <utility>

namespace gpunbd::server::admin {

class Mailbox {
 public:
    explicit Mailbox(boost::asio::io_context& io) : io_(&io) {}

    // Any thread. Never waits for the endpoint's thread.
    template <typename Call>
    void post(Call call) {
        const std::lock_guard lock(mutex_);
        if (io_ != nullptr) boost::asio::post(*io_, std::move(call));
    }
    // Before the io_context is destroyed.
    void close() {
        const std::lock_guard lock(mutex_);
        io_ = nullptr;
    }

 private:
    std::mutex mutex_;
    boost::asio::io_context* io_;
};

}  // namespace gpunbd::server::admin
