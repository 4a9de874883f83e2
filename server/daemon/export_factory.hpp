// Creates exports with volumes from their options. Volumes whose options are unchanged stay in use.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "server/daemon/service.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/exports/volume_plan.hpp"
#include "server/handover/kept_contents.hpp"
#include "storage/images/restore_image.hpp"

namespace gpunbd::server {

// An export gets another name and stays the same otherwise.
struct Renaming {
    std::string from;
    std::string to;
};

// How volumes are created and destroyed.
struct VolumeLife {
    std::stop_token stop = {};  // stopping cancels the creation, which is reported as a problem
    VolumeDisposal* disposal = nullptr;  // null: volumes are destroyed by their last owner
    KeptContents* contents = nullptr;    // null: contents are not kept; otherwise `disposal` is set
    storage::ChannelOptions channels = {};  // to restore contents
    OriginLocks* origin_locks = nullptr;    // see plan_volume()
    bool restores_later = false;            // see MadeExports::unfilled
    // Exports that could not be restored later, with the reasons. They are refused.
    std::map<std::string, std::string> not_restored = {};
    // The export that gets new contents, whatever is kept for its name.
    std::optional<std::string> renewed = {};
    std::optional<Renaming> renaming = {};  // of one of the exports in use
    bool same_devices = false;  // exports in use have the spill memory of the configuration already
    // Opens the channels of all workers to devices that exports get as spill memory, so that no
    // request waits for that. Throws if that fails. Empty: requests open them.
    std::function<void(const std::vector<storage::Device*>&)> open_channels = {};
};

// Either all exports, or all problems; then nothing has changed. `current` are the exports in use.
struct MadeExports {
    ExportRegistry::Exports exports;
    std::vector<std::string> problems;
    // Exports that are not offered because their kept contents cannot be taken over, with the
    // reasons.
    struct Refused {
        std::string name;
        std::string why;
    };
    std::vector<Refused> refused = {};
    // New exports that the caller has to restore from their options.restore. They are incomplete,
    // and closed to clients. Empty unless VolumeLife::restores_later.
    struct Unfilled {
        std::shared_ptr<const Export> exported;
        std::shared_ptr<ExportUse::Closure> closure;
    };
    std::vector<Unfilled> unfilled = {};
};
MadeExports make_exports(const config::ExportList& options, DeviceRegistry& devices,
                         const ExportRegistry::Exports& current, const VolumeLife& life = {});

// For the file of the key `restore`. RunTimeExports creates no export that is too small for its
// file, so one that is was made smaller later: its next server restores what it still had.
storage::LargerImage larger_image_for(const config::ExportOptions& options);

// Says what was restored from the file of the key `restore`.
void log_restored(const config::ExportOptions& options, const storage::Volume& volume);

class ExportService;

// A change of the options and of the exports, from its turn until its exports are offered.
// Destroying it before that drops the change of the options and exports.
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
