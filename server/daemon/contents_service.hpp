#pragma once

#include <boost/asio/steady_timer.hpp>
#include <string>
#include <vector>

#include "server/admin/model/admin_backend.hpp"
#include "server/daemon/export_service.hpp"
#include "server/daemon/server_admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/handover/kept_contents.hpp"

namespace gpunbd::server {

// The admin endpoint's reports about kept contents.

Kept list_kept(const KeptContents& contents);
// Frees contents of that name without an export. Succeeds if any were freed.
Outcome drop_kept(KeptContents& contents, const std::string& name);

// Lists and drops kept contents for the admin endpoint.
class KeptQueries final : public Service, private ExportService::Observer {
 public:
    KeptQueries(ServerContext& context, ExportService& exports);

    // Fails while exports are being made, because the use of the contents is not known then.
    void answer(const ServerAdminBackend::KeptQuery& query);

 private:
    void exports_idle() override;  // answers those that wait

    ServerContext& context_;
    ExportService& exports_;
    std::vector<ServerAdminBackend::KeptQuery> waiting_;
};

// Takes over contents, device mappings and calibration that the supervisor stores, and releases
// those that no export uses.
class ContentsService final : public Service, private ExportService::Observer {
 public:
    ContentsService(ServerContext& context, ExportService& exports);

    // Opens the devices of the contents. If another server is still exiting, waits until it is
    // dead.
    void open() override;
    void start() override;
    void resume() override { release_unused(); }
    // After exports have been made: stores what the next server needs, and releases the rest. Not
    // before a takeover is certain: until then the contents are those of the predecessor.
    void settle();

 private:
    void exports_remade() override { settle(); }
    void wait_for_start_gate();
    void release_unused();

    ServerContext& context_;
    const ExportService& exports_;
    boost::asio::steady_timer timer_;
};

}  // namespace gpunbd::server
