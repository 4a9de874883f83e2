#include "server/nbd/session.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint32_t checks_in_a_limit = 8;

}  // namespace

void Session::set_deadline(std::chrono::seconds after, const char* reason) {
    deadline_.expires_after(after);
    deadline_.async_wait([weak = weak_from_this(), reason](boost::system::error_code error) {
        const auto self = weak.lock();
        if (!self || error) return;
        self->failure_ = HandshakeFailure::timeout;
        self->cut(reason);
    });
}

// The check needs one timer per client and does no work per request.
void Session::check_idle(std::uint32_t checks, std::uint64_t requests) {
    idle_timer_.expires_after(limits_.idle / checks_in_a_limit);
    idle_timer_.async_wait(
        [weak = weak_from_this(), checks, requests](boost::system::error_code error) {
            const auto self = weak.lock();
            if (!self || error) return;
            const std::uint64_t now = self->counters_->requests.value();
            if (now != requests || self->connection_->has_operations() ||
                self->connection_->holds_request_back()) {
                self->check_idle(0, now);
            } else if (checks + 1 < checks_in_a_limit) {
                self->check_idle(checks + 1, now);
            } else {
                self->cut("it was idle for too long");
            }
        });
}

// A client has vanished if it does not acknowledge TCP retransmissions. A connected client that
// does not read its replies still answers keepalives.
void Session::check_reachable(std::uint32_t checks) {
    const std::chrono::milliseconds interval =
        std::chrono::milliseconds(limits_.unreachable) / checks_in_a_limit;
    reach_timer_.expires_after(interval);
    reach_timer_.async_wait(
        [weak = weak_from_this(), checks, interval](boost::system::error_code error) {
            const auto self = weak.lock();
            if (!self || error) return;
            const std::uint32_t unanswered =
                self->connection_->transport().silent_for(interval) ? checks + 1 : 0;
            if (unanswered < checks_in_a_limit) {
                self->check_reachable(unanswered);
            } else {
                self->cut("the client was unreachable for too long");
            }
        });
}

void Session::watch_client() {
    if (limits_.idle.count() != 0) check_idle(0, counters_->requests.value());
    if (limits_.unreachable.count() != 0 &&
        connection_->transport().enable_keepalive(limits_.unreachable)) {
        check_reachable(0);
    }
}

}  // namespace gpunbd::server
