#include "server/daemon/connection_dispatcher.hpp"

#include <spdlog/spdlog.h>

#include <stdexcept>
#include <utility>

#include "server/base/line_limit.hpp"
#include "server/exports/exposure.hpp"

namespace gpunbd::server {

ConnectionDispatcher::ConnectionDispatcher(ServerContext& context, const WorkerPool& workers)
    : context_(context),
      workers_(workers),
      limits_{.handshake = context.options.limits.handshake,
              .in_flight = context.options.limits.in_flight_per_connection,
              .linger = context.options.limits.drain,
              .idle = context.options.limits.idle,
              .unreachable = context.options.limits.unreachable} {}

void ConnectionDispatcher::open() {
    tls_ = TlsContext::load(context_.options);
    if (const auto warning = unproved_in_tls(context_.options)) spdlog::warn("{}", *warning);
}

Service::Commit ConnectionDispatcher::reload(const config::Options& next, Problems& /*problems*/) {
    auto warning = unproved_in_tls(next);
    if (warning == unproved_in_tls(context_.options)) warning.reset();
    return [this, tls = TlsContext::load(next), warning] {
        tls_ = tls;
        if (warning) spdlog::warn("{}", *warning);
    };
}

void ConnectionDispatcher::accept(OwnedFd fd, Peer peer) {
    try {
        ConnectionSlots::Answer answer = context_.slots.enter(peer);
        if (!answer.slot) {
            counters_.refused[static_cast<std::size_t>(answer.limit)].add();
            ClientLine(spdlog::level::warn)
                .with("peer", peer.text())
                .say("{}: refused: {}", peer.text(), answer.refusal);
            return;
        }
        counters_.accepted.add();
        if (answer.evicted) answer.evicted->worker->evict(answer.evicted);
        workers_.least_busy().serve(std::move(fd), std::move(peer), context_.exports, limits_,
                                    std::move(answer.slot), tls_);
    } catch (const std::exception& error) {
        if (client_lines().take()) spdlog::error("a connection is lost: {}", error.what());
    }
}

void ConnectionDispatcher::adopt(Predecessor::Client client) {
    try {
        Peer peer = peer_of(client.socket.get(), client.state->listener);
        ConnectionSlots::Answer answer = context_.slots.enter(peer);
        if (!answer.slot) throw std::runtime_error(answer.refusal);
        answer.slot->served();  // before the next one, because handshakes are limited
        workers_.least_busy().serve(std::move(client.socket), std::move(peer), context_.exports,
                                    limits_, std::move(answer.slot), nullptr,
                                    std::move(client.state));
    } catch (const std::exception& error) {
        spdlog::warn("a connection of the earlier process is closed: {}", error.what());
    }
}

}  // namespace gpunbd::server
