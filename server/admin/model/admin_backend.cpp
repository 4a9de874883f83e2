#include "server/admin/model/admin_backend.hpp"

#include <atomic>
#include <exception>
#include <utility>

namespace gpunbd::server {

namespace {

constexpr const char* replacement =
    "the server is being replaced; send the request again, to its successor";

}  // namespace

struct Completion::State {
    explicit State(Sink given) : sink(std::move(given)) {}
    ~State() {
        try {
            take(outcome_of_ending());
        } catch (const std::exception&) {
            // Out of memory. The endpoint's own time limit ends the client's wait.
        }
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    void take(Outcome outcome) {
        if (!called.exchange(true)) sink(std::move(outcome));
    }

    const Sink sink;
    std::atomic<bool> called{false};
};

Completion::Completion(Sink sink) : state_(std::make_shared<State>(std::move(sink))) {}

void Completion::operator()(Outcome outcome) const { state_->take(std::move(outcome)); }

Outcome outcome_of_ending() {
    return NotDone{"the server is ending; send the request to the next one"};
}

Outcome outcome_of_replacement() { return NotDone{replacement}; }

bool NotDone::of_replacement() const { return why == replacement; }

}  // namespace gpunbd::server
