// Lists and drops kept contents for the admin endpoint.
#pragma once

#include <vector>

#include "server/daemon/export_service.hpp"
#include "server/daemon/server_admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class RetainedQueries final : public Service, private ExportService::Observer {
 public:
    RetainedQueries(ServerContext& context, ExportService& exports);

    // Fails while exports are being made, because the use of the contents is not known then.
    void answer(const ServerAdminBackend::RetainedQuery& query);

 private:
    void exports_idle() override;  // answers those that wait

    ServerContext& context_;
    ExportService& exports_;
    std::vector<ServerAdminBackend::RetainedQuery> waiting_;
};

}  // namespace gpunbd::server
