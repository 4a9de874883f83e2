#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "config/quote.hpp"
#include "server/base/line_limit.hpp"
#include "server/nbd/session.hpp"
#include "server/net/transport/tls_stream.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

constexpr const char* hung_up_early = "the client hung up during the handshake";

const char* describe_headers(protocol::Headers headers) {
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

std::string describe_contexts(protocol::MetaContexts contexts) {
    std::string names;
    for (const protocol::MetaContext context : protocol::all_contexts) {
        if (contexts.has(context)) names += fmt::format(", {}", protocol::name_of(context));
    }
    return names;
}

}  // namespace

Task<bool> Session::negotiate() {
    set_deadline(limits_.handshake, "the handshake took too long");
    negotiation_.emplace(offered_, tls_ ? tls_->mode() : protocol::TlsMode::off);
    if (!co_await send_all(negotiation_->greeting())) co_return false;
    Transport& transport = connection_->transport();
    std::array<std::byte, 4096> buffer;
    std::span<const std::byte> left;  // received, not consumed yet
    bool more = false;                // the negotiation can continue without receiving
    std::size_t work = 0;             // of this turn, in bytes
    for (;;) {
        if (stops_negotiating()) co_return false;
        if (more || work >= Scheduler::turn) {
            co_await connection_->next_turn();
            if (connection_->closed()) co_return false;
            work = 0;
        }
        if (!more) {
            iovec piece{.iov_base = buffer.data(), .iov_len = buffer.size()};
            const Transport::Result got = transport.receive({&piece, 1});
            if (got.wait != Transport::Wait::none) {
                if (!co_await wait_for_client(got.wait)) co_return false;
                continue;
            }
            if (got.ended) {
                const std::string_view why = transport.failure();
                reason_ = why.empty() ? hung_up_early : why;
                failure_ = why.empty() ? HandshakeFailure::hung_up : HandshakeFailure::tls;
                co_return false;
            }
            left = std::span(buffer).first(got.bytes);
            work += std::max(got.bytes, got.work);
        }
        std::size_t used = 0;
        const auto next = negotiation_->feed(left, used);
        GPUNBD_ASSERT(used <= left.size(), "a negotiation consumes bytes that it has got");
        left = left.subspan(used);
        more =
            next == protocol::Negotiation::Next::more || next == protocol::Negotiation::Next::wait;
        // Before the answer is sent, so that a client that has it is never evicted.
        if (slot_ && next == protocol::Negotiation::Next::transmit && !slot_->served()) {
            evict();  // as the worker is about to
            co_return false;
        }
        if (!co_await send_all(negotiation_->take_output())) co_return false;
        if (next == protocol::Negotiation::Next::wait && !co_await wait_for_clone())
            co_return false;
        if (more || next == protocol::Negotiation::Next::receive) continue;
        if (next == protocol::Negotiation::Next::start_tls) {
            if (!co_await start_tls()) co_return false;
            negotiation_->enter_tls();
            continue;
        }
        if (next == protocol::Negotiation::Next::close) {
            const bool aborted = negotiation_->reason().empty();
            reason_ = aborted ? "the client aborted the handshake" : negotiation_->reason();
            failure_ = aborted ? HandshakeFailure::aborted : HandshakeFailure::protocol;
            co_return false;
        }
        GPUNBD_ASSERT(next == protocol::Negotiation::Next::transmit,
                      "an export is served after the last option of the client");
        const protocol::NegotiatedOptions negotiated = negotiation_->negotiated();
        negotiation_.reset();
        export_name_ = negotiated.export_info.name;
        lease_ = offered_.take_lease();
        GPUNBD_ASSERT(lease_ != nullptr, "a negotiation that succeeds has entered its export");
        OfferedExports::Opened opened = offered_.open(export_name_);
        std::shared_ptr<const Export> related;
        if (!negotiated.related.empty()) related = offered_.open(negotiated.related).exported;
        const bool relates = negotiated.related.empty() ||
                             (opened.exported && related &&
                              related->volume->shares_pools_of(*opened.exported->volume));
        if (!opened.exported || !relates ||
            opened.info.instance != negotiated.export_info.instance ||
            opened.info.size != negotiated.export_info.size ||
            opened.info.read_only != negotiated.export_info.read_only) {
            reason_ = "the export was removed or changed during the handshake";
            worker_.counters.handshake_failed(HandshakeFailure::export_gone);
            co_return false;
        }
        if (connection_->closed()) co_return false;
        deadline_.cancel();
        connection_->serve(negotiated, std::move(opened.exported), left, std::move(related));
        connection_->limit_rates(lease_->rates());
        worker_.counters.handshakes.add();
        publish_facts();
        watch_client();
        if (draining_)
            connection_->drain();  // drain() was called while the last option was being answered
        if (quiescing_) quiesce();
        ClientLine(spdlog::level::debug)
            .with("peer", peer_.text())
            .with("export", export_name_)
            .log("{}: serving export {}{}{}", peer_.text(), config::in_quotes(export_name_),
                 describe_headers(negotiated.headers), describe_contexts(negotiated.contexts));
        co_return true;
    }
}

bool Session::stops_negotiating() {
    if (leaving_) reason_ = "another server is taking over";
    return leaving_;
}

Task<bool> Session::wait_for_client(Transport::Wait direction) {
    if (draining_) {
        reason_ = "the server is stopping";
        co_return false;
    }
    co_await connection_->ready(direction);
    co_return !connection_->closed();
}

// It counts against the deadline of the handshake, as start_tls() does.
Task<bool> Session::wait_for_clone() {
    const CloneWait wait(worker_.io, [this] { connection_->wakeup().resume(); });
    CloneRequest request = offered_.take_clone_request();
    request.answer = wait.answer();
    exports_.clone_requests().send(std::move(request));
    while (!wait.answered()) {
        co_await connection_->resumed();
        if (connection_->closed() || stops_negotiating()) co_return false;
    }
    offered_.clone_answered(*wait.answered());
    co_return true;
}

Task<bool> Session::start_tls() {
    TlsStream& stream = connection_->transport().start_tls(tls_, worker_.receive_buffers);
    for (;;) {
        co_await connection_->long_turn();
        if (connection_->closed() || stops_negotiating()) co_return false;
        const Transport::Result done = stream.shake_hands();
        if (done.ended) {
            reason_ = "the TLS handshake failed: " + stream.failure();
            failure_ = HandshakeFailure::tls;
            co_return false;
        }
        if (stream.established()) break;
        if (done.wait != Transport::Wait::none && !co_await wait_for_client(done.wait)) {
            co_return false;
        }
    }
    peer_.tls = stream.identity();
    tls_description_ = stream.text();
    worker_.counters.tls_handshakes.add();
    co_return true;
}

Task<bool> Session::send_all(std::vector<std::byte> bytes) {
    Transport& transport = connection_->transport();
    iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
    while (piece.iov_len != 0) {
        const Transport::Result done = transport.send({&piece, 1});
        if (done.ended) {
            reason_ = hung_up_early;
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

}  // namespace gpunbd::server
