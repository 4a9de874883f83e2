#include <algorithm>

#include "server/admin/metrics/families.hpp"

namespace gpunbd::server {

namespace {

void add_by_reason(Exposition& out, const CountsByReason& counts) {
    for (const auto& [reason, count] : counts) out.add({{"reason", reason}}, count);
}

void add_arrivals(Exposition& out, const Status& status) {
    out.family(
        {"gpunbd_connections_accepted", MetricType::counter, "Connections that were accepted."});
    out.add({}, status.accepted);
    out.family({"gpunbd_connections_refused", MetricType::counter,
                "Connections that were closed before their handshake."});
    add_by_reason(out, status.refused);
    out.family({"gpunbd_handshakes", MetricType::counter, "Handshakes that came to an export."});
    out.add({}, status.handshakes);
    out.family({"gpunbd_tls_handshakes", MetricType::counter, "TLS handshakes that succeeded."});
    out.add({}, status.tls_handshakes);
    out.family({"gpunbd_handshake_failures", MetricType::counter, "Handshakes that failed."});
    add_by_reason(out, status.failed_handshakes);
}

// How many there are of a kind, and never which: each client would be series that nobody asks for
// any more once it is gone.
void add_present(Exposition& out, const std::vector<ConnectionStatus>& connections) {
    const auto count = [&](auto is) { return std::ranges::count_if(connections, is); };
    const auto serving = count([](const ConnectionStatus& each) { return each.serving; });
    out.family({"gpunbd_connections", MetricType::gauge, "Connections that there are."});
    out.add({{"state", "negotiating"}}, std::ssize(connections) - serving);
    out.add({{"state", "serving"}}, serving);
    out.family({"gpunbd_tls_connections", MetricType::gauge, "Those of them that are in TLS."});
    out.add({}, count([](const ConnectionStatus& each) { return !each.tls.empty(); }));

    CountsByReason by_listener;
    for (const ConnectionStatus& each : connections) ++by_listener[each.listener];
    out.family(
        {"gpunbd_listener_connections", MetricType::gauge, "Connections that came by a listener."});
    for (const auto& [listener, number] : by_listener) out.add({{"listener", listener}}, number);
}

}  // namespace

void add_connection_metrics(Exposition& out, const Status& status) {
    add_arrivals(out, status);
    add_present(out, status.connections);
}

}  // namespace gpunbd::server
