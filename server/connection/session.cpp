#include "server/connection/session.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <array>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/connection/line_limit.hpp"
#include "server/tls/tls_stream.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint32_t looks_in_a_limit = 8;
constexpr const char* gone_early = "the client hung up during the handshake";

const char* headers_in_words(protocol::Headers headers) {
    switch (headers) {
        case protocol::Headers::simple:
            return "";
        case protocol::Headers::structured:
            return ", structured replies";
        case protocol::Headers::extended:
            return ", extended headers";
    }
    return "";
}

std::string in_words(protocol::MetaContexts contexts) {
    std::string words;
    for (const protocol::MetaContext context : protocol::all_contexts) {
        if (contexts.has(context)) words += fmt::format(", {}", protocol::name_of(context));
    }
    return words;
}

}  // namespace

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
    ended_ = std::move(ended);
    running_ = run();
    running_.start();
}

Task<> Session::run() {
    try {
        co_await live();
    } catch (const std::exception& error) {
        spdlog::error("a connection's end cannot be told: {}", error.what());
    }
    ended_(*this);
}

Task<> Session::live() {
    bool failed = false;
    try {
        if (earlier_ ? take_over(*earlier_) : co_await negotiate()) co_await serve();
        co_await settle();
    } catch (const std::exception& error) {
        failed = true;
        reason_ = error.what();
    }
    connection_->close(reason_.empty() ? connection_->reason() : reason_);
    while (connection_->has_operations()) co_await connection_->resumed();
    place_.reset();
    deadline_.cancel();
    idle_timer_.cancel();
    reach_timer_.cancel();
    if (!moves_away_ || failed) report_end(failed);
}

void Session::report_end(bool failed) {
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    const std::string peer = peer_.text();
    const std::string& reason = connection_->reason();
    const std::uint64_t requests = counters_->requests.value();
    const std::uint64_t read = counters_->read.value();
    const std::uint64_t written = counters_->written.value();
    ClientLine line(failed ? spdlog::level::err : spdlog::level::info);
    line.with("peer", peer);
    std::string done;
    if (peer_.tls) {
        const std::string who = peer_.tls->text();
        line.with("tls", tls_words_).with("tls_identity", who);
        done = fmt::format("{}{}{}; ", tls_words_, who.empty() ? "" : ", ", who);
    }
    std::string error = failed ? reason : "";
    if (negotiation_) {  // it never agreed on an export
        const protocol::Asked asked = negotiation_->asked();
        if (asked.export_name) line.with("export", *asked.export_name);
        if (!failed) error = asked.refusal;
        if (!asked.words.empty()) done += asked.words + "; ";
        if (!asked.refusal.empty()) failure_ = HandshakeFailure::refused;
        worker_.counters.handshake_failed(failure_);
    } else {
        line.with("export", export_name_);
        done += fmt::format("export {}: {} request{}, {} read, {} written; ",
                            config::in_quotes(export_name_), requests, requests == 1 ? "" : "s",
                            config::human_size(read), config::human_size(written));
    }
    line.with("requests", requests)
        .with("bytes_read", read)
        .with("bytes_written", written)
        .with("seconds", seconds)
        .with("reason", reason);
    if (!error.empty()) line.with("error", error);
    line.say("{}: {}closed after {:.1f} s: {}", peer, done, seconds, reason);
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

// A look costs idle clients a timer, and a request nothing.
void Session::look_whether_idle(std::uint32_t looks, std::uint64_t requests) {
    idle_timer_.expires_after(limits_.idle / looks_in_a_limit);
    idle_timer_.async_wait(
        [weak = weak_from_this(), looks, requests](boost::system::error_code error) {
            const auto self = weak.lock();
            if (!self || error) return;
            const std::uint64_t now = self->counters_->requests.value();
            if (now != requests || self->connection_->has_operations() ||
                self->connection_->holds_request_back()) {
                self->look_whether_idle(0, now);
            } else if (looks + 1 < looks_in_a_limit) {
                self->look_whether_idle(looks + 1, now);
            } else {
                self->cut("it asked for nothing for too long");
            }
        });
}

// A client that has vanished without a word is one that answers nothing of what TCP sends again and
// again. One that is there, and takes no answers, tells so each time it is asked.
void Session::look_whether_reachable(std::uint32_t looks) {
    const std::chrono::milliseconds interval =
        std::chrono::milliseconds(limits_.unreachable) / looks_in_a_limit;
    reach_timer_.expires_after(interval);
    reach_timer_.async_wait(
        [weak = weak_from_this(), looks, interval](boost::system::error_code error) {
            const auto self = weak.lock();
            if (!self || error) return;
            const std::uint32_t unanswered =
                self->connection_->transport().silent_for(interval) ? looks + 1 : 0;
            if (unanswered < looks_in_a_limit) {
                self->look_whether_reachable(unanswered);
            } else {
                self->cut("the client could not be reached for too long");
            }
        });
}

void Session::watch_client() {
    if (limits_.idle.count() != 0) look_whether_idle(0, counters_->requests.value());
    if (limits_.unreachable.count() != 0 &&
        connection_->transport().ask_whether_there(limits_.unreachable)) {
        look_whether_reachable(0);
    }
}

// --- negotiating

Task<bool> Session::negotiate() {
    set_deadline(limits_.handshake, "the handshake took too long");
    negotiation_.emplace(offered_, tls_ ? tls_->mode() : protocol::TlsMode::off);
    if (!co_await send_all(negotiation_->greeting())) co_return false;
    Transport& transport = connection_->transport();
    std::array<std::byte, 4096> buffer;
    for (;;) {
        iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
        const Transport::Result got = transport.receive({&piece, 1});
        if (got.wait != Transport::Wait::none) {
            co_await connection_->ready(got.wait);
            if (connection_->closed()) co_return false;
            continue;
        }
        if (got.ended) {
            reason_ = gone_early;
            failure_ = HandshakeFailure::hung_up;
            co_return false;
        }
        std::size_t used = 0;
        const auto next = negotiation_->feed(std::span(buffer).first(got.bytes), used);
        // Before the client knows it, too: who was told that it is served is not ended for others.
        if (slot_ && next == protocol::Negotiation::Next::transmit) slot_->served();
        if (!co_await send_all(negotiation_->take_output())) co_return false;
        if (next == protocol::Negotiation::Next::receive) continue;
        if (next == protocol::Negotiation::Next::start_tls) {
            if (!co_await start_tls()) co_return false;
            negotiation_->enter_tls();
            continue;
        }
        if (next == protocol::Negotiation::Next::close) {
            const bool aborted = negotiation_->reason().empty();
            reason_ = aborted ? "the client left the handshake" : negotiation_->reason();
            failure_ = aborted ? HandshakeFailure::aborted : HandshakeFailure::protocol;
            co_return false;
        }
        const protocol::NegotiatedOptions negotiated = negotiation_->negotiated();
        negotiation_.reset();
        export_name_ = negotiated.export_info.name;
        place_ = offered_.take_place();
        OfferedExports::Opened opened = offered_.open(export_name_);
        if (!opened.exported || opened.info.instance != negotiated.export_info.instance ||
            opened.info.size != negotiated.export_info.size ||
            opened.info.read_only != negotiated.export_info.read_only) {
            reason_ = "the export went away during the handshake";
            worker_.counters.handshake_failed(HandshakeFailure::export_gone);
            co_return false;
        }
        if (connection_->closed()) co_return false;
        deadline_.cancel();
        connection_->serve(negotiated, std::move(opened.exported),
                           std::span(buffer).first(got.bytes).subspan(used));
        connection_->limit_rates(place_->rates());
        worker_.counters.handshakes.add();
        tell_serving();
        watch_client();
        if (draining_) connection_->drain();  // told while the last option was being answered
        if (pausing_) pause();
        ClientLine(spdlog::level::debug)
            .with("peer", peer_.text())
            .with("export", export_name_)
            .say("{}: serving export {}{}{}", peer_.text(), config::in_quotes(export_name_),
                 headers_in_words(negotiated.headers), in_words(negotiated.contexts));
        co_return true;
    }
}

// The deadline of the handshake goes on: it is one.
Task<bool> Session::start_tls() {
    TlsStream& stream = connection_->transport().start_tls(tls_, worker_.receive_buffers);
    for (;;) {
        co_await connection_->long_turn();
        if (connection_->closed()) co_return false;
        const Transport::Result done = stream.shake_hands();
        if (done.ended) {
            reason_ = "the TLS handshake failed: " + stream.failure();
            failure_ = HandshakeFailure::tls;
            co_return false;
        }
        if (done.wait == Transport::Wait::none) break;
        co_await connection_->ready(done.wait);
        if (connection_->closed()) co_return false;
    }
    peer_.tls = stream.identity();
    tls_words_ = stream.words();
    worker_.counters.tls_handshakes.add();
    co_return true;
}

Task<bool> Session::send_all(std::vector<std::byte> bytes) {
    Transport& transport = connection_->transport();
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    while (piece.iov_len != 0) {
        const Transport::Result done = transport.send({&piece, 1});
        if (done.ended) {
            reason_ = gone_early;
            failure_ = HandshakeFailure::hung_up;
            co_return false;
        }
        if (done.wait != Transport::Wait::none) {
            co_await connection_->ready(done.wait);
            if (connection_->closed()) co_return false;
        }
        piece.iov_base = static_cast<std::byte*>(piece.iov_base) + done.bytes;
        piece.iov_len -= done.bytes;
    }
    co_return true;
}

bool Session::take_over(const ConnectionState& earlier) {
    const protocol::ExportInfo& info = earlier.negotiated.export_info;
    export_name_ = info.name;
    started_ -= std::chrono::milliseconds(earlier.milliseconds);
    reason_ = offered_.enter(export_name_);
    place_ = offered_.take_place();
    if (!place_) return false;
    OfferedExports::Opened opened = offered_.open(export_name_);
    if (!opened.exported || opened.info.size != info.size ||
        opened.info.read_only != info.read_only) {
        reason_ = "the server that was started in place of another offers another export";
        return false;
    }
    connection_->serve(earlier.negotiated, std::move(opened.exported), earlier.received);
    connection_->limit_rates(place_->rates());
    connection_->continue_from(earlier);
    tell_serving();
    watch_client();
    return true;
}

// --- serving

void Session::tell_serving() {
    const auto age = Clock::now() - started_;
    worker_.counters.learn(
        *counters_, {.peer = peer_.text(),
                     .listener = peer_.listener,
                     .since = ConnectionFacts::Clock::now() -
                              std::chrono::duration_cast<ConnectionFacts::Clock::duration>(age),
                     .export_name = export_name_,
                     .serving = true,
                     .read_only = connection_->export_info().read_only,
                     .tls = tls_words_,
                     .identity = peer_.tls ? peer_.tls->text() : ""});
}

Task<> Session::serve() {
    Connection& connection = *connection_;
    connection.begin_turn();
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
        connection.begin_turn();
    }
}

void Session::look_at_access() noexcept {
    if (negotiation_ || connection_->closed()) return;
    try {
        if (std::string why = why_not_stay(); !why.empty()) {
            connection_->close(std::move(why));
        } else if (place_) {
            connection_->limit_rates(place_->rates());
        }
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

std::string Session::why_not_stay() const {
    const auto now = exports_.open(export_name_);
    if (!now || now->info.name != export_name_) return {};  // removed: who is there may finish
    const Verdict verdict = now->access.decide(Applicant(peer_));
    const bool writes = !connection_->export_info().read_only;
    if (now->info.read_only && writes) return "the export is read-only from now on";
    if (verdict.access == Access::denied) {
        return fmt::format("by the new configuration it may not open the export any more: {}",
                           now->access.why(verdict));
    }
    if (verdict.access == Access::read_only && writes) {
        return fmt::format("by the new configuration it may only read: {}",
                           now->access.why(verdict));
    }
    return {};
}

// --- moving to another process

bool Session::contents_stay() const { return connection_->contents_outlive_server(); }

void Session::pause() noexcept {
    pausing_ = true;
    if (!contents_stay()) return;
    try {
        connection_->pause();
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

void Session::go_on() noexcept {
    pausing_ = moves_away_ = false;
    try {
        connection_->go_on();
    } catch (const std::exception&) {
        cut(Connection::no_memory);
    }
}

bool Session::quiet() const { return !contents_stay() || connection_->quiet(); }

std::unique_ptr<Session::Moving> Session::move_away() {
    if (!contents_stay() || !connection_->can_move()) return nullptr;
    OwnedFd socket(::fcntl(connection_->transport().descriptor(), F_DUPFD_CLOEXEC, 0));
    if (socket.get() < 0) return nullptr;
    auto moving = std::make_unique<Moving>(std::move(socket), ConnectionState{});
    connection_->describe(moving->state);
    moving->state.listener = peer_.listener;
    moving->state.milliseconds = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_).count());
    moves_away_ = true;
    return moving;
}

void Session::leave() noexcept {
    if (moves_away_) {
        connection_->leave();
    } else {
        drain();
    }
}

// --- draining and closed

void Session::drain() noexcept {
    draining_ = true;
    try {
        if (negotiation_) {
            negotiation_->shut_down();
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
    set_deadline(limits_.farewell, "the client did not take its last answers");
    while (!connection_->settle()) co_await connection_->resumed();
}

void Session::evict() noexcept {
    failure_ = HandshakeFailure::evicted;
    cut("its handshake went for others, for it was the oldest of too many");
}

void Session::cut(const char* reason) noexcept {
    try {
        connection_->close(reason);
    } catch (const std::exception&) {
        connection_->close(Connection::no_memory);
    }
}

}  // namespace gpunbd::server
