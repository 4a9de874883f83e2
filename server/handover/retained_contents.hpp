// The contents of exports that outlive the server: what an earlier server has left with the
// supervisor, and what this one gives to it. Any thread may call.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config/options.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/handover/contents_retainer.hpp"
#include "server/supervisor/inherited_descriptors.hpp"
#include "storage/pages/imported_slabs.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

// What the configuration of an export asks of its volume, as text: contents that were made for
// another one are not taken for it.
std::string wanted_of(const config::ExportOptions& options);

class RetainedContents {
 public:
    using Clock = std::chrono::steady_clock;

    // Takes what an earlier server has stored out of `handed_over`. The store outlives this and all
    // volumes; the devices and the disposal that it is given later outlive this. `patience`: with a
    // supervisor that is busy. `imported`: slabs of these contents that this process has already.
    using Imported = std::map<std::string, std::unique_ptr<storage::ImportedSlabs>>;  // by id
    RetainedContents(DescriptorStore& store, InheritedDescriptors& handed_over,
                     std::chrono::milliseconds patience = std::chrono::seconds(10),
                     Imported imported = {});
    RetainedContents(const RetainedContents&) = delete;
    RetainedContents& operator=(const RetainedContents&) = delete;

    // The contents that are left for this export, taken over. Null: there are none. Where it
    // throws, they stay as they are and can be taken over later; std::runtime_error has the reason.
    std::shared_ptr<storage::Volume> take_over(const config::ExportOptions& options,
                                               DeviceRegistry& devices, VolumeDisposal& disposal);
    // The devices of what is left for these exports, as taking over will want them. One that cannot
    // be opened may be by then.
    void open_devices(const std::vector<config::ExportOptions>& exports, DeviceRegistry& devices);
    // New contents for this export: what `create` makes. If it throws, nothing is kept of them.
    using Create = std::function<std::shared_ptr<storage::Volume>(const storage::Retention&)>;
    std::shared_ptr<storage::Volume> make(const config::ExportOptions& options,
                                          const Create& create);
    // Nothing of what is kept changes until go_on(), as long as no client writes: so another
    // process can take it over. Waits for what is under way. What is made or taken over meanwhile
    // rests, too.
    void rest();
    void go_on();
    // Copies of all descriptors, by their names: tables, and slabs with what their directory says.
    // While nothing rests, slabs may come and go behind it.
    struct Copy {
        std::string name;
        storage::SlabEntry entry;  // of a slab
        OwnedFd descriptor;
    };
    std::vector<Copy> copies() const;

    // What is offered now. Contents that no export has are given back when `grace` is over, which
    // the log tells, once for each. Messages that could not be sent to the supervisor are tried
    // again. When to call again; unset: it need not be.
    struct Offered {
        std::string name;
        bool keep = false;
        std::shared_ptr<storage::Volume> volume;  // null: its contents could not be taken over
    };
    std::optional<Clock::time_point> settle(const std::vector<Offered>& offered,
                                            std::chrono::seconds grace, Clock::time_point now);

    struct Summary {
        std::string name;
        std::uint64_t size = 0;             // bytes
        std::optional<std::uint64_t> used;  // bytes of its pages; unset: not taken over
        std::string devices;                // "host, GPU-…"
        std::int64_t made = 0;              // seconds since 1970
        std::string instance;
        std::string state;
    };
    std::vector<Summary> summaries() const;
    // Gives back what is left of an export that is not taken over. How many there were.
    std::size_t drop(const std::string& name);

 private:
    // Of an earlier server, and not taken over. Once the keeper has forgotten all, it only waits
    // for the supervisor.
    struct Left {
        std::unique_ptr<storage::PageTable> table;  // null: it cannot be read
        storage::Volume::Descriptors slabs;
        std::shared_ptr<ContentsRetainer> keeper;
        std::string ambiguous;  // what the supervisor has twice; empty: nothing
        std::string refused;    // why it could not be taken over
        std::optional<Clock::time_point> ends;
    };
    // Of this one.
    struct Own {
        std::shared_ptr<ContentsRetainer> keeper;  // the volume owns it, too
        std::string name;
        std::weak_ptr<storage::Volume> volume;
        std::shared_ptr<storage::Volume> held;  // of no export any more, until it ends
        // Taken over for an export, until it is told whether that is offered: its configuration may
        // be refused after all.
        std::shared_ptr<storage::Volume> taken;
        std::optional<Clock::time_point> ends;
        bool making = true;
    };

    std::shared_ptr<storage::Volume> held_for(const config::ExportOptions& options);
    std::map<std::string, Left>::iterator find_left(const config::ExportOptions& options);
    std::shared_ptr<storage::Volume> adopt(const std::string& id, const Left& left,
                                           const config::ExportOptions& options,
                                           DeviceRegistry& devices, VolumeDisposal& disposal);
    // Contents of this server, by id, as a node for own_: to insert that cannot fail.
    std::map<std::string, Own> prepare_own(const std::string& id, const std::string& name,
                                           std::shared_ptr<ContentsRetainer> keeper) const;
    static void give_back(Left& left);
    static void give_back(Own& own);
    void settle(Left& left, const std::vector<Offered>& offered, Clock::time_point end);
    void settle(Own& own, const std::vector<Offered>& offered, Clock::time_point end);

    DescriptorStore& store_;
    const std::chrono::milliseconds patience_;
    bool resting_ = false;
    mutable std::mutex mutex_;
    std::map<std::string, Left> left_;  // by id
    std::map<std::string, Own> own_;    // by id
    Imported imported_;                 // until resume: what is not taken by then is released
};

}  // namespace gpunbd::server
