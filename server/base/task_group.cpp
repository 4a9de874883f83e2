#include "server/base/task_group.hpp"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <exception>
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

struct TaskGroup::Root {
    struct promise_type {
        Root get_return_object() {
            return {std::coroutine_handle<promise_type>::from_promise(*this)};
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        std::suspend_never final_suspend() const noexcept { return {}; }
        void return_void() const noexcept {}
        void unhandled_exception() const noexcept { std::terminate(); }  // run() catches all
    };
    std::coroutine_handle<promise_type> frame;
};

void TaskGroup::start(Task<> task) {
    Running one(1);
    const Root root = run(std::move(task), one.begin(), std::make_shared<WaitMemory>());
    one.front() = root.frame;
    running_.splice(running_.end(), one);
    root.frame.resume();
}

void TaskGroup::clear() {
    while (!running_.empty()) {
        const std::coroutine_handle<> waiting = running_.front();
        running_.pop_front();
        waiting.destroy();
    }
}

// `memory`: there may be no other to report the failure.
TaskGroup::Root TaskGroup::run(Task<> task, Running::iterator place,
                               std::shared_ptr<WaitMemory> memory) {
    std::exception_ptr failure;
    try {
        co_await task;
    } catch (...) {
        failure = std::current_exception();
    }
    running_.erase(place);
    if (!failure) co_return;
    boost::asio::post(io_,
                      within(std::move(memory), [failure] { std::rethrow_exception(failure); }));
}

}  // namespace gpunbd::server
