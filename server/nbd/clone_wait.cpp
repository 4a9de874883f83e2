#include "server/nbd/clone_wait.hpp"

#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

struct CloneWait::State {
    Mutex mutex;
    // Null: the session has ended, or has its answer.
    boost::asio::io_context* io GUARDED_BY(mutex) = nullptr;
    // These two are used on the thread of `io`.
    std::function<void()> wake;
    std::optional<std::string> answered;
};

struct CloneWait::Answer {
    explicit Answer(std::shared_ptr<State> its_state) : state(std::move(its_state)) {}
    ~Answer() {
        try {
            give("the server is ending");
        } catch (const std::exception&) {  // no memory: the limit of the handshake ends the wait
        }
    }
    Answer(const Answer&) = delete;
    Answer& operator=(const Answer&) = delete;

    void give(std::string why_not) {
        const Lock lock(state->mutex);
        if (state->io == nullptr) return;
        boost::asio::post(*state->io, [state = state, why_not = std::move(why_not)] {
            if (!state->wake) return;
            GPUNBD_ASSERT(!state->answered, "a request for a clone is answered once");
            state->answered = why_not;
            state->wake();
        });
        state->io = nullptr;
    }

    const std::shared_ptr<State> state;
};

CloneWait::CloneWait(boost::asio::io_context& io, std::function<void()> wake)
    : state_(std::make_shared<State>()) {
    state_->io = &io;
    state_->wake = std::move(wake);
}

CloneWait::~CloneWait() {
    state_->wake = nullptr;
    const Lock lock(state_->mutex);
    state_->io = nullptr;
}

std::function<void(std::string)> CloneWait::answer() const {
    return [answer = std::make_shared<Answer>(state_)](std::string why_not) {
        answer->give(std::move(why_not));
    };
}

const std::optional<std::string>& CloneWait::answered() const { return state_->answered; }

}  // namespace gpunbd::server
