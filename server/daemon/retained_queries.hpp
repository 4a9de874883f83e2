// Lists and drops retained contents, for the admin endpoint.
#pragma once

#include <vector>

#include "server/daemon/export_service.hpp"
#include "server/daemon/server_admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class RetainedQueries final : public Service {
 public:
    RetainedQueries(ServerContext& context, ExportService& exports);

    // While exports are being made it is not known which contents they use, so queries wait.
    void answer(const ServerAdminBackend::RetainedQuery& query);

 private:
    void answer_waiting();

    ServerContext& context_;
    ExportService& exports_;
    std::vector<ServerAdminBackend::RetainedQuery> waiting_;
};

}  // namespace gpunbd::server
