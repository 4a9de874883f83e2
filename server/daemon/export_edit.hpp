// A change of the options and of the exports, from its turn until its exports are offered.
// Destroying it before that drops the change of the options and exports.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/daemon/export_factory.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class ExportService;

struct ExportEdit {
    // The right to change exports, which one edit at a time has.
    struct EndTurn {
        void operator()(ExportService* service) const noexcept;
    };
    using Turn = std::unique_ptr<ExportService, EndTurn>;
    enum class Source : std::uint8_t { caller, current, file };  // of the options

    Turn turn;
    config::Options options;
    Source source = Source::caller;
    // For the owner of the edit to set, before ExportService::make():
    bool by_client = false;  // its log lines are limited
    // An export that gets another name. It keeps its contents, its connections and its counters.
    std::optional<Renaming> renaming = {};

    // ExportService sets the rest.
    Service::Commit commit = {};
    std::shared_ptr<const ExportRegistry::Exports> before = {};
    std::map<std::string, std::string> not_restored = {};  // see VolumeLife
    std::optional<std::string> renewed = {};               // see VolumeLife
    bool same_devices = false;                             // see VolumeLife
    MadeExports made = {};
};

}  // namespace gpunbd::server
