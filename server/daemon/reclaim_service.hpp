// Gives memory of devices back to other programs, for the admin endpoint and the configuration.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
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
    void end(const EndOfReclaim& request, const Completion& completion);
    // May be called on any thread.
    void add_to(DeviceStatus& status) const { reclaimer_->add_to(status); }

 private:
    using Timer = boost::asio::steady_timer;

    // Empty: the completion has the reason.
    std::vector<std::string> devices_for(const std::string& device, const Completion& completion);
    Reclaimer::Done forget_later(const Reclaimer::Ids& ended);
    void end_later(std::uint64_t claim, std::chrono::seconds duration);

    ServerContext& context_;
    // Expired timers do nothing once this is gone.
    std::shared_ptr<Reclaimer> reclaimer_;
    // The end of a claim with a duration.
    struct Ending {
        explicit Ending(boost::asio::io_context& io) : timer(io) {}
        Timer timer;
        std::weak_ptr<Reclaimer::Done> requests;  // expired: there are none in progress
    };
    std::map<std::uint64_t, Ending> endings_;  // by claim
    std::uint64_t last_claim_ = 0;             // its id
};

}  // namespace gpunbd::server
