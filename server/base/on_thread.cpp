#include "server/base/on_thread.hpp"

#include <pthread.h>

#include <utility>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

OnThread::OnThread(boost::asio::io_context& io, const char* name, std::stop_source stop,
                   const Work& work)
    : io_runs_(io.get_executor()), name_(name), stop_(std::move(stop)), work_(work), ended_(io) {}

OnThread::~OnThread() {
    if (!thread_.joinable()) return;
    stop_.request_stop();
    thread_.join();
}

void OnThread::await_suspend(std::coroutine_handle<> waiting) {
    ended_.await_suspend(waiting);
    const storage::SignalsBlocked blocked;
    thread_ = std::thread([this, ended = ended_.giver()] {
        ::pthread_setname_np(::pthread_self(), name_);
        std::exception_ptr failure;
        try {
            work_(stop_.get_token());
        } catch (...) {
            failure = std::current_exception();
        }
        ended(std::move(failure));
    });
}

void OnThread::await_resume() {
    thread_.join();
    if (const std::exception_ptr failure = ended_.await_resume()) std::rethrow_exception(failure);
}

}  // namespace gpunbd::server
