#pragma once

#include "config/options.hpp"
#include "server/daemon/listeners.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

// The first export of a configuration. The server shows its URI.

inline bool first_export_needs_tls(const config::Options& options) {
    return options.tls.mode == config::TlsMode::required || options.exports.front().tls_required;
}

// Reports to the log and to the supervisor that the server is ready, or that it is stopping.
class Readiness final : public Service {
 public:
    Readiness(ServerContext& context, const Listeners& listeners)
        : context_(context), listeners_(listeners) {}

    void start() override;
    void drain() override;

 private:
    void log_ready() const;

    ServerContext& context_;
    const Listeners& listeners_;
};

}  // namespace gpunbd::server
