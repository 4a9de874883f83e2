// Makes the clone of a client that opens an export with clone_per_client for the first time.
#pragma once

#include <cstddef>

#include "server/base/task.hpp"
#include "server/base/task_group.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

class ClientClones final : public Service {
 public:
    ClientClones(ServerContext& context, ExportService& exports);
    ~ClientClones() override;
    void stop() override;

 private:
    // On the server's thread.
    Task<> make(CloneRequest request);

    ServerContext& context_;
    ExportService& exports_;
    std::size_t waiting_ = 0;  // clones that are not made
    LoopCalls calls_;
    TaskGroup tasks_;
};

}  // namespace gpunbd::server
