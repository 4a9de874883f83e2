// Takes over contents, device mappings and calibration that the supervisor stores, and releases
// those that no export uses.
#pragma once

#include <boost/asio/steady_timer.hpp>

#include "server/daemon/export_service.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

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
