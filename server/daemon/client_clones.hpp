// Makes the clone of a client that opens an export with clone_per_client for the first time.
#pragma once

#include <memory>

#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/exports/clone_requests.hpp"

namespace gpunbd::server {

class ClientClones final : public Service {
 public:
    ClientClones(ServerContext& context, ExportService& exports);
    ~ClientClones() override;
    void stop() override;

 private:
    // On the server's thread.
    void make(const CloneRequest& request);

    ServerContext& context_;
    ExportService& exports_;
    // Held once by each edit that is not done.
    const std::shared_ptr<const bool> waiting_ = std::make_shared<const bool>();
    // Requests that arrive once this is gone are refused.
    std::shared_ptr<ClientClones*> self_ = std::make_shared<ClientClones*>(this);
};

}  // namespace gpunbd::server
