// A coroutine. Asio's own coroutines allocate when they are destroyed, which ends the
// program if no memory is left. This one allocates only its frame, when it is called.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

template <typename Result>
struct TaskResult {
    std::optional<Result> value;
    void return_value(Result result) { value = std::move(result); }
    Result take() {
        GPUNBD_ASSERT(value.has_value(), "a coroutine that ends without an exception has a result");
        return std::move(*value);
    }
};

template <>
struct TaskResult<void> {
    void return_void() const noexcept {}
    void take() const noexcept {}
};

// Starts when it is awaited, or by start(). Destroying it destroys its frame and those that it
// awaits. The awaiting coroutine gets the result or the exception; without one, both are dropped.
template <typename Result = void>
class [[nodiscard]] Task {
 public:
    struct BackToCaller;

    struct promise_type : TaskResult<Result> {
        std::coroutine_handle<> caller = std::noop_coroutine();
        std::exception_ptr error;

        Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() const noexcept { return {}; }
        BackToCaller final_suspend() const noexcept { return {}; }
        void unhandled_exception() noexcept { error = std::current_exception(); }
    };
    using Frame = std::coroutine_handle<promise_type>;

    struct BackToCaller {
        bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(Frame ended) const noexcept {
            return ended.promise().caller;
        }
        void await_resume() const noexcept {}
    };

    Task() = default;
    Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
    Task& operator=(Task&& other) noexcept {
        std::swap(frame_, other.frame_);
        return *this;
    }
    ~Task() {
        if (frame_) frame_.destroy();
    }

    void start() {
        GPUNBD_ASSERT(frame_ && !frame_.done(), "a coroutine starts once");
        frame_.resume();
    }

    // Awaitable
    bool await_ready() const noexcept { return false; }
    Frame await_suspend(std::coroutine_handle<> caller) noexcept {
        GPUNBD_ASSERT(frame_ && !frame_.done(), "a coroutine is awaited before its end");
        frame_.promise().caller = caller;
        return frame_;
    }
    Result await_resume() {
        if (frame_.promise().error) std::rethrow_exception(frame_.promise().error);
        return frame_.promise().take();
    }

 private:
    explicit Task(Frame frame) : frame_(frame) {}

    Frame frame_;
};

}  // namespace gpunbd::server
