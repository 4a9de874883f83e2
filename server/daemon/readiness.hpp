// Reports to the log and to the supervisor that the server is ready, or that it is stopping.
#pragma once

#include "server/daemon/listeners.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

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
