// Gives memory of devices back to other programs, for the admin endpoint and the configuration.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/admin/model/admin_backend.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "server/reclaim/reclaimer.hpp"

namespace gpunbd::server {

class ReclaimService final : public Service {
 public:
    explicit ReclaimService(ServerContext& context);

    void start() override;
    // Refuses to remove spill memory that holds pages.
    Commit reload(const config::Options& next, Problems& problems) override;
    void resume() override;
    void stop() override;
    // Until resume(), no page moves, so that another process can take the contents over. Pages on
    // their way arrive before.
    void pause() { reclaimer_->stop(); }

    // On the server's thread.
    void reclaim(const ReclaimRequest& request, const Completion& completion);
    void end(const std::string& device, const Completion& completion);
    // May be called on any thread.
    void add_to(DeviceStatus& status) const { reclaimer_->add_to(status); }

 private:
    using Timer = boost::asio::steady_timer;

    // Empty: the completion has the reason.
    std::vector<std::string> devices_for(const std::string& device, const Completion& completion);
    void end_later(const std::string& device, std::chrono::seconds duration);

    ServerContext& context_;
    // Expired timers do nothing once this is gone.
    std::shared_ptr<Reclaimer> reclaimer_;
    std::map<std::string, Timer> timers_;  // by device
};

}  // namespace gpunbd::server
