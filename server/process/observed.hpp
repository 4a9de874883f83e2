// The server as the admin endpoint sees it.
#pragma once

#include "server/admin/observed_server.hpp"
#include "server/exports/export_registry.hpp"

namespace gpunbd::server {

class Observed final : public ObservedServer {
 public:
    // Of the server; it outlives this.
    explicit Observed(const ExportRegistry& exports);

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
    const ExportRegistry& exports_;
    const double started_;
};

}  // namespace gpunbd::server
