// A coroutine's wait for a value that another thread gives, or a later call. A value that arrives
// once the wait is destroyed is dropped, so no coroutine resumes into an object that is gone.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <coroutine>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "server/base/wait_memory.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
