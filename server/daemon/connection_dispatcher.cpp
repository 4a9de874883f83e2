#include "server/daemon/connection_dispatcher.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "server/base/line_limit.hpp"
#include "server/exports/access_list.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

ConnectionDispatcher::ConnectionDispatcher(ServerContext& context, const WorkerPool& workers)
    : context_(context),
      workers_(workers),
      limits_{.handshake = context.options.limits.handshake,
              .in_flight = context.options.limits.in_flight_per_connection,
              .linger = context.options.limits.drain,
              .idle = context.options.limits.idle,
              .unreachable = context.options.limits.unreachable} {}

std::vector<std::string> ConnectionDispatcher::tls_warnings(const config::Options& options) const {
    std::vector<std::string> texts;
    if (auto text = unproved_in_tls(options)) texts.push_back(std::move(*text));
    const auto& flags = context_.command.overrides.values;
    const bool by_flag = std::any_of(flags.begin(), flags.end(),
                                     [](const auto& each) { return each.first == "tls.mode"; });
    if (by_flag) return texts;  // --tls off turns off the TLS of a file
    if (const auto text = unused_credentials(options)) texts.push_back("tls: " + *text);
    return texts;
}

void ConnectionDispatcher::open() {
    tls_ = TlsContext::load(context_.options);
    for (const std::string& each : tls_warnings(context_.options)) spdlog::warn("{}", each);
}

Service::Commit ConnectionDispatcher::reload(const config::Options& next, Problems& /*problems*/) {
    std::vector<std::string> added = tls_warnings(next);
    for (const std::string& each : tls_warnings(context_.options)) std::erase(added, each);
    return [this, tls = TlsContext::load(next), added = std::move(added)] {
        tls_ = tls;
        for (const std::string& each : added) spdlog::warn("{}", each);
    };
}

void ConnectionDispatcher::accept(OwnedFd fd, Peer peer) {
    try {
        ConnectionSlots::Answer answer = context_.slots.enter(peer);
        if (!answer.slot) {
            counters_.refused[static_cast<std::size_t>(answer.limit)].add();
            ClientLine(spdlog::level::warn)
                .with("peer", peer.text())
                .log("{}: refused: {}", peer.text(), answer.refusal);
            return;
        }
        counters_.accepted.add();
        GPUNBD_ASSERT(!answer.evicted || answer.evicted->worker != nullptr,
                      "a connection has its worker before the next one is accepted");
        if (answer.evicted) answer.evicted->worker->evict(answer.evicted);
        workers_.least_busy().serve(std::move(fd), std::move(peer), context_.exports, limits_,
                                    std::move(answer.slot), tls_);
    } catch (const std::exception& error) {
        if (client_lines().take()) spdlog::error("a connection is lost: {}", error.what());
    }
}

void ConnectionDispatcher::take_over(Predecessor::Client client) {
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
