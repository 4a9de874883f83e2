// Saves exports to files and restores them, on a thread of its own: at the request of an
// administrator, and as their key `save` says.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "server/admin/model/admin_backend.hpp"
#include "server/base/task.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "storage/base/mutex.hpp"
#include "storage/images/save_image.hpp"

namespace gpunbd::server {

class Saves final : public Service {
 public:
    explicit Saves(ServerContext& context);

    void start() override;
    void hand_over() override { handed_over_ = true; }
    // Cancels what is in progress, and saves the exports that are saved at the stop.
    void stop() override;

    // On the server's thread, for coroutines, which get the outcome. They begin in the order of the
    // calls; none begins while this server hands over or drains.
    Awaited<Outcome> save(const std::shared_ptr<const Export>& served, const std::string& path,
                          const storage::ImageFormat& format);
    // Refuses exports that have contents or clients.
    Awaited<Outcome> restore(const std::shared_ptr<const Export>& served, const std::string& path);
    // Restores a new export, which is closed and incomplete and stays so.
    Awaited<Outcome> restore_new(const std::shared_ptr<const Export>& made);
    // Whether a save or a restore is in progress or waits.
    bool busy() const;

 private:
    using Clock = std::chrono::steady_clock;
    using Work = std::function<Outcome(const std::stop_token&)>;
    struct Job {
        Work work;
        Awaited<Outcome>::Giver give;
    };

    Awaited<Outcome> submit(Work work);
    std::optional<Job> take_next(const std::stop_token& stop);
    void run(const std::stop_token& stop);
    void save_those_due();

    ServerContext& context_;
    const storage::ChannelOptions channels_;
    boost::asio::steady_timer timer_;
    bool handed_over_ = false;
    // The beginning of the last save. An export has the same use after it was renamed.
    std::map<std::shared_ptr<ExportUse>, Clock::time_point> last_;
    mutable Mutex mutex_;
    StoppableCondition submitted_;
    std::deque<Job> jobs_ GUARDED_BY(mutex_);
    bool working_ GUARDED_BY(mutex_) = false;
    std::jthread thread_;  // ends before the rest is destroyed
};

}  // namespace gpunbd::server
