#include "server/base/task_group.hpp"

#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

namespace gpunbd::server {

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
