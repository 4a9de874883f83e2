#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "server/base/wait_memory.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

// A coroutine's wait for a value that another thread gives, or a later call. A value that arrives
// once the wait is destroyed is dropped, so no coroutine resumes into an object that is gone.

template <typename Value = std::monostate>
class [[nodiscard]] Awaited {
    struct State {
        explicit State(boost::asio::io_context& its_io) : io(its_io) {}

        boost::asio::io_context& io;
        const std::shared_ptr<WaitMemory> memory = std::make_shared<WaitMemory>();
        // The following are used on the thread of `io`.
        std::coroutine_handle<> coroutine = {};
        std::optional<Value> value = {};
        bool dropped = false;
    };

 public:
    // Gives the value; the first one counts. It may be copied, and called on any thread, but not on
    // two at once. If it is destroyed uncalled, the coroutine waits until its owner destroys it.
    class Giver {
     public:
        // The first call allocates nothing if Value is small.
        void operator()(Value value = {}) const {
            auto give = [state = state_, value = std::move(value)]() mutable {
                if (state->dropped || state->value) return;
                state->value.emplace(std::move(value));
                if (const auto waiting = std::exchange(state->coroutine, {})) waiting.resume();
            };
            boost::asio::post(state_->io, within(state_->memory, std::move(give)));
        }

     private:
        friend class Awaited;
        explicit Giver(std::shared_ptr<State> state) : state_(std::move(state)) {}
        std::shared_ptr<State> state_;
    };

    // The coroutine continues on the thread of `io`, which outlives all givers.
    explicit Awaited(boost::asio::io_context& io) : state_(std::make_shared<State>(io)) {}
    Awaited(Awaited&&) noexcept = default;
    Awaited& operator=(Awaited&&) = delete;
    ~Awaited() {
        if (state_) state_->dropped = true;
    }

    Giver giver() const { return Giver(state_); }

    // Awaitable, once, by the coroutine that has this object.
    bool await_ready() const noexcept { return state_->value.has_value(); }
    void await_suspend(std::coroutine_handle<> waiting) noexcept { state_->coroutine = waiting; }
    Value await_resume() { return std::move(*state_->value); }

 private:
    std::shared_ptr<State> state_;
};

// A coroutine. Asio's own coroutines allocate when they are destroyed, which ends the
// program if no memory is left. This one allocates only its frame, when it is called.
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

// `co_await sleep_for(...)`: a pause of a coroutine.

// `timer` is one of `io`, and has no other wait. If it is cancelled or destroyed, the coroutine
// waits until its owner destroys it.
inline Awaited<> sleep_for(boost::asio::io_context& io, boost::asio::steady_timer& timer,
                           boost::asio::steady_timer::duration duration) {
    Awaited<> passed(io);
    timer.expires_after(duration);
    timer.async_wait([give = passed.giver()](boost::system::error_code error) {
        if (!error) give();
    });
    return passed;
}

}  // namespace gpunbd::server
