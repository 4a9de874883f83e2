#include "server/nbd/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/line_limit.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint32_t checks_in_a_limit = 8;
constexpr std::chrono::seconds close_limit{1};  // for a client after its DISC

}  // namespace

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

Session::Session(WorkerContext& worker, Socket socket, Peer peer, const ExportRegistry& exports,
                 const SessionLimits& limits, std::shared_ptr<Slot> slot,
                 std::shared_ptr<const TlsContext> tls,
                 std::unique_ptr<const ConnectionState> earlier)
    : worker_(worker),
      peer_(std::move(peer)),
      counters_(worker.counters.begin({.peer = peer_.text(), .listener = peer_.listener})),
      connection_(std::make_shared<Connection>(worker, std::move(socket), peer_.text(),
                                               limits.in_flight, counters_)),
      exports_(exports),
      offered_(exports, peer_),
      limits_(limits),
      slot_(std::move(slot)),
      tls_(std::move(tls)),
      earlier_(std::move(earlier)),
      deadline_(worker.io),
      idle_timer_(worker.io),
      reach_timer_(worker.io) {}

Session::~Session() { worker_.counters.end(*counters_); }

void Session::start(std::function<void(Session&)> ended) {
    GPUNBD_ASSERT(!ended_, "a session starts once");
    ended_ = std::move(ended);
    running_ = run();
    running_.start();
}

Task<> Session::run() {
    try {
        co_await live();
    } catch (const std::exception& error) {
        spdlog::error("failed to log the end of a connection: {}", error.what());
    }
    ended_(*this);
}

Task<> Session::live() {
    bool failed = false;
    try {
        if (earlier_ ? take_over(*earlier_) : co_await negotiate()) co_await serve();
        co_await settle();
        co_await wait_for_close();
    } catch (const std::exception& error) {
        failed = true;
        reason_ = error.what();
    }
    connection_->close(reason_.empty() ? connection_->reason() : reason_);
    while (connection_->has_operations()) co_await connection_->resumed();
    lease_.reset();
    deadline_.cancel();
    idle_timer_.cancel();
    reach_timer_.cancel();
    if (!moved_ || failed) report_end(failed);
}

void Session::report_end(bool failed) {
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    const std::string peer = peer_.text();
    const std::string& reason = connection_->reason();
    const std::uint64_t requests = counters_->requests.value();
    const std::uint64_t read = counters_->read.value();
    const std::uint64_t written = counters_->written.value();
    const std::uint64_t errors = counters_->errors.value();
    const auto stalled = std::chrono::duration<double>(connection_->longest_stall());
    ClientLine line(failed ? spdlog::level::err : spdlog::level::info);
    line.with("peer", peer);
    std::string done;
    if (peer_.tls) {
        const std::string who = peer_.tls->text();
        line.with("tls", tls_description_).with("tls_identity", who);
        done = fmt::format("{}{}{}; ", tls_description_, who.empty() ? "" : ", ", who);
    }
    std::string error = failed ? reason : "";
    if (negotiation_) {  // there was no handshake to the end
        const protocol::Asked asked = negotiation_->asked();
        if (asked.export_name) line.with("export", *asked.export_name);
        if (!failed) error = asked.refusal;
        if (!asked.words.empty()) done += asked.words + "; ";
        if (!asked.refusal.empty()) failure_ = HandshakeFailure::refused;
        worker_.counters.handshake_failed(failure_);
    } else {
        line.with("export", export_name_);
        done += fmt::format("export {}: {} request{}{}, {} read, {} written; ",
                            config::in_quotes(export_name_), requests, requests == 1 ? "" : "s",
                            errors == 0 ? "" : fmt::format(" ({} failed)", errors),
                            config::human_size(read), config::human_size(written));
        if (stalled >= Stall::least) {
            done += fmt::format("the client did not read replies for {:.1f} s; ", stalled.count());
        }
    }
    line.with("requests", requests)
        .with("errors", errors)
        .with("bytes_read", read)
        .with("bytes_written", written)
        .with("seconds", seconds)
        .with("reason", reason);
    if (!error.empty()) line.with("error", error);
    line.log("{}: {}closed after {:.1f} s: {}", peer, done, seconds, reason);
}

void Session::publish_facts() {
    worker_.counters.learn(*counters_, {.peer = peer_.text(),
                                        .listener = peer_.listener,
                                        .since = started_,
                                        .export_name = export_name_,
                                        .serving = true,
                                        .read_only = connection_->export_info().read_only,
                                        .tls = tls_description_,
                                        .identity = peer_.tls ? peer_.tls->text() : ""});
}

Task<> Session::serve() {
    GPUNBD_ASSERT(!negotiation_ && lease_ != nullptr,
                  "a session serves after its negotiation, with a lease of the export");
    Connection& connection = *connection_;
    for (;;) {
        switch (connection.round()) {
            case Connection::Round::again:
                continue;
            case Connection::Round::yield:
                co_await connection.next_turn();
                break;
            case Connection::Round::idle:
                co_await connection.ready(Transport::Wait::readable);
                break;
            case Connection::Round::blocked:
                co_await connection.resumed();
                break;
            case Connection::Round::over:
                co_return;
        }
    }
}

void Session::drain() noexcept {
    draining_ = true;
    try {
        if (negotiation_) {
            negotiation_->shut_down();
            connection_->wakeup().resume();  // it may wait for bytes that never come
        } else if (!connection_->closed()) {
            connection_->drain();
        }
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

Task<> Session::settle() {
    if (connection_->closed()) co_return;
    connection_->stop_taking();
    set_deadline(limits_.linger, "the client did not read its last replies");
    while (!connection_->settle()) co_await connection_->resumed();
}

Task<> Session::wait_for_close() {
    if (!connection_->has_disconnected() || !connection_->transport().peer_closes_first())
        co_return;
    reason_ = connection_->reason();
    set_deadline(close_limit, Connection::client_disconnected);
    std::byte rest{};
    iovec into{.iov_base = &rest, .iov_len = sizeof rest};
    while (!connection_->closed()) {
        const int socket = connection_->transport().descriptor();
        if (Transport::receive_from(socket, {&into, 1}).wait == Transport::Wait::none) co_return;
        co_await connection_->ready(Transport::Wait::readable);
    }
}

void Session::evict() noexcept {
    failure_ = HandshakeFailure::evicted;
    cut("there were too many handshakes, and its handshake was the oldest");
}

void Session::cut(const char* reason) noexcept {
    try {
        connection_->close(reason);
    } catch (const std::exception&) {
        connection_->close(Connection::no_memory);
    }
}

void Session::check_access() noexcept {
    if (negotiation_) return;
    try {
        follow_name();
        std::string why = reason_to_close();
        refused_ = !why.empty();
        if (connection_->closed()) return;
        connection_->follow_size();
        if (refused_) {
            connection_->close(std::move(why));
        } else if (lease_) {
            connection_->limit_rates(lease_->rates());
        }
    } catch (const std::exception&) {
        refused_ = true;
        cut(Connection::no_memory);
    }
}

void Session::follow_name() {
    std::string name = lease_ ? lease_->export_name() : export_name_;
    if (name == export_name_) return;
    connection_->follow_name(name);
    export_name_ = std::move(name);
    publish_facts();
}

std::string Session::reason_to_close() const {
    if (std::string why = lease_ ? lease_->disconnected() : ""; !why.empty()) return why;
    const auto now = exports_.open(export_name_);
    if (!now || now->info.name != export_name_)
        return {};  // the export was removed; its connections stay
    const Verdict verdict = now->access.decide(PeerIdentity(peer_));
    const bool writes = !connection_->export_info().read_only;
    if (lease_ && lease_->requires_current_size() &&
        connection_->export_info().size != now->info.size) {
        return "the export has another size now";
    }
    if (now->info.read_only && writes) return "the export is now read-only";
    if (verdict.access == Access::denied) {
        return fmt::format("the new configuration denies access to the export: {}",
                           now->access.why(verdict));
    }
    if (verdict.access == Access::read_only && writes) {
        return fmt::format("the new configuration permits only reading: {}",
                           now->access.why(verdict));
    }
    return {};
}

bool Session::contents_outlive_server() const { return connection_->contents_outlive_server(); }

void Session::quiesce() noexcept {
    quiescing_ = true;
    if (!contents_outlive_server()) return;
    try {
        connection_->quiesce();
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

void Session::resume() noexcept {
    quiescing_ = moved_ = false;
    try {
        connection_->resume();
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

bool Session::quiet() const { return !contents_outlive_server() || connection_->quiet(); }

std::unique_ptr<Session::Moving> Session::move_away() {
    if (!contents_outlive_server() || !connection_->can_move()) return nullptr;
    OwnedFd socket(::fcntl(connection_->transport().descriptor(), F_DUPFD_CLOEXEC, 0));
    if (socket.get() < 0) return nullptr;
    GPUNBD_ASSERT(!moved_ && quiescing_, "a paused session moves away once");
    auto moving = std::make_unique<Moving>(std::move(socket), ConnectionState{});
    connection_->describe(moving->state);
    moving->state.listener = peer_.listener;
    moving->state.milliseconds = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_).count());
    moved_ = true;
    return moving;
}

void Session::leave() noexcept {
    if (moved_) {
        connection_->leave();
        return;
    }
    drain();
    leaving_ = negotiation_.has_value();
}

bool Session::take_over(const ConnectionState& earlier) {
    const protocol::ExportInfo& info = earlier.negotiated.export_info;
    export_name_ = info.name;
    started_ -= std::chrono::milliseconds(earlier.milliseconds);
    reason_ = offered_.enter(export_name_);
    lease_ = offered_.take_lease();
    if (!lease_) return false;
    OfferedExports::Opened opened = offered_.open(export_name_);
    if (!opened.exported || opened.info.size != info.size ||
        opened.info.read_only != info.read_only) {
        reason_ = "the new server offers a different export of this name";
        return false;
    }
    GPUNBD_ASSERT(!negotiation_, "a session that is taken over does not negotiate");
    connection_->serve(earlier.negotiated, std::move(opened.exported), earlier.received);
    connection_->limit_rates(lease_->rates());
    connection_->continue_from(earlier);
    publish_facts();
    watch_client();
    return true;
}

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
