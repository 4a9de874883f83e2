#include "server/nbd/session.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/line_limit.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

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

}  // namespace gpunbd::server
