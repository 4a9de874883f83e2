// What the admin endpoint sees of this server, and may do to it. It is asked by a thread of its own
// and reads what workers count; what is to be done is done on the server's thread.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"
#include "server/admin/observed_server.hpp"
#include "server/connection/connection_slots.hpp"
#include "server/exports/export_registry.hpp"
#include "server/worker/worker.hpp"
#include "storage/counter.hpp"

namespace gpunbd::server {

class Observed final : public ObservedServer {
 public:
    using Workers = std::vector<Worker*>;
    enum class State : std::uint8_t { starting, serving, draining };

    // How the server changes the options of an export, on its thread. Once they hold, or cannot,
    // it tells; a text: why not.
    using Change = std::function<void(config::ExportOptions&)>;
    using Told = std::function<void(const std::string& why_not)>;
    using ChangeExport =
        std::function<void(const std::string& name, const Change& change, const Told& told)>;

    // Both outlive it. One thread at a time asks it.
    Observed(boost::asio::io_context& io, const ExportRegistry& exports,
             ChangeExport change_export);

    // The server's thread. The workers outlive who asks.
    void serves(Workers workers);
    void drains() { state_ = State::draining; }
    void accepted() { accepted_.add(); }
    void refused(ConnectionLimit limit) { refused_[static_cast<std::size_t>(limit)].add(); }

    Status status() override;
    std::optional<ExportMap> map(std::string_view name, std::uint64_t offset, std::uint64_t length,
                                 std::uint32_t max_cells) override;
    std::optional<PageRuns> pages(std::string_view name, std::uint64_t offset, std::uint64_t length,
                                  std::size_t max_runs) override;
    Outcome end_connection(std::uint64_t id) override;
    Outcome set_log_level(std::string_view level) override;
    Outcome set_rates(std::string_view name, const RateStatus& rates) override;
    Outcome set_read_only(std::string_view name, bool read_only) override;

 private:
    Workers workers() const;
    std::shared_ptr<const Export> find(std::string_view name) const;
    // With the devices that those lie on.
    void add_exports(Status& status, const Workers& workers) const;
    void add_connections(Status& status, const Workers& workers) const;
    // Waits for the server's thread.
    Outcome change(std::string_view name, Change change, std::string done);

    boost::asio::io_context& io_;
    const ExportRegistry& exports_;
    const ChangeExport change_export_;
    const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
    std::atomic<State> state_{State::starting};
    storage::Counter accepted_;
    std::array<storage::Counter, connection_limits.size()> refused_;
    mutable std::mutex mutex_;
    Workers workers_;
};

}  // namespace gpunbd::server
