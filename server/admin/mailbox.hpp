// Passes calls from other threads to the thread of the admin endpoint. It may outlive the endpoint:
// later calls are dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "storage/base/mutex.hpp"

namespace gpunbd::server::admin {

class Mailbox {
 public:
    explicit Mailbox(boost::asio::io_context& io) : io_(&io) {}

    // Any thread. Never waits for the endpoint's thread.
    template <typename Call>
    void post(Call call) {
        const Lock lock(mutex_);
        if (io_ != nullptr) boost::asio::post(*io_, std::move(call));
    }
    // Before the io_context is destroyed.
    void close() {
        const Lock lock(mutex_);
        io_ = nullptr;
    }

 private:
    Mutex mutex_;
    boost::asio::io_context* io_ GUARDED_BY(mutex_);
};

}  // namespace gpunbd::server::admin
