// `co_await OnThread(...)` calls a function on a thread of its own, and continues on the thread of
// the event loop. An exception of the function is thrown there.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <coroutine>
#include <exception>
#include <functional>
#include <stop_token>
#include <thread>

#include "server/base/awaited.hpp"

namespace gpunbd::server {

class OnThread {
 public:
    using Work = std::function<void(const std::stop_token&)>;

    // `io` outlives this object, and runs until the function returns. `work` may use what the
    // waiting coroutine has: destroying that requests `stop`, and waits for the thread.
    OnThread(boost::asio::io_context& io, const char* name, std::stop_source stop,
             const Work& work);
    ~OnThread();
    OnThread(const OnThread&) = delete;
    OnThread& operator=(const OnThread&) = delete;

    // Awaitable, once.
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting);
    void await_resume();

 private:
    const boost::asio::executor_work_guard<boost::asio::io_context::executor_type> io_runs_;
    const char* const name_;
    std::stop_source stop_;
    const Work& work_;
    Awaited<std::exception_ptr> ended_;
    std::thread thread_;
};

}  // namespace gpunbd::server
