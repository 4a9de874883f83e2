// A coroutine of a session. Asio's own allocate when they are destroyed, and so end the program
// where there is no memory; of this one nothing is allocated but its frame, when it is called.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace gpunbd::server {

// It begins when it is awaited, or by start(). Its frame, with those that it awaits, goes with it,
// also while it waits. The result, or the exception, is for who awaits it; without a caller both
// are dropped.
template <typename Result = void>
class [[nodiscard]] Task {
 public:
    class promise_type;

    Task() = default;
    Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, {})) {}
    Task& operator=(Task&& other) noexcept {
        std::swap(frame_, other.frame_);
        return *this;
    }
    ~Task() {
        if (frame_) frame_.destroy();
    }

    void start() { frame_.resume(); }

    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept {
        frame_.promise().caller = caller;
        return frame_;
    }
    Result await_resume() { return frame_.promise().take(); }

 private:
    explicit Task(std::coroutine_handle<promise_type> frame) : frame_(frame) {}

    struct BackToCaller {
        bool await_ready() const noexcept { return false; }
        std::coroutine_handle<> await_suspend(
            std::coroutine_handle<promise_type> ended) const noexcept {
            return ended.promise().caller;
        }
        void await_resume() const noexcept {}
    };

    struct Outcome {
        std::coroutine_handle<> caller = std::noop_coroutine();
        std::exception_ptr error;

        std::suspend_always initial_suspend() const noexcept { return {}; }
        BackToCaller final_suspend() const noexcept { return {}; }
        void unhandled_exception() noexcept { error = std::current_exception(); }
    };

    struct Nothing : Outcome {
        void return_void() const noexcept {}
        void take() const {
            if (this->error) std::rethrow_exception(this->error);
        }
    };
    template <typename Value>
    struct Something : Outcome {
        std::optional<Value> value;
        void return_value(Value result) { value = std::move(result); }
        Value take() {
            if (this->error) std::rethrow_exception(this->error);
            return std::move(*value);
        }
    };

 public:
    class promise_type : public std::conditional_t<
                             std::is_void_v<Result>, Nothing,
                             Something<std::conditional_t<std::is_void_v<Result>, int, Result>>> {
     public:
        Task get_return_object() {
            return Task(std::coroutine_handle<promise_type>::from_promise(*this));
        }
    };

 private:
    std::coroutine_handle<promise_type> frame_;
};

}  // namespace gpunbd::server
