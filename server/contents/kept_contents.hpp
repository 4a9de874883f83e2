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
#include "server/contents/contents_keeper.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/keeping/handed_over.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

// What the configuration of an export asks of its volume, as text: contents that were made for
// another one are not taken for it.
std::string wanted_of(const config::ExportOptions& options);

class KeptContents {
 public:
    using Clock = std::chrono::steady_clock;

    // Takes what an earlier server has stored out of `handed_over`. The store outlives this.
    // `patience`: with a supervisor that is busy.
    KeptContents(DescriptorStore& store, HandedOver& handed_over,
                 std::chrono::milliseconds patience = std::chrono::seconds(10));
    KeptContents(const KeptContents&) = delete;
    KeptContents& operator=(const KeptContents&) = delete;

    // The contents that are left for this export, taken over. Null: there are none. Throws
    // std::runtime_error, with the reason, where they cannot be taken over; they stay.
    std::shared_ptr<storage::Volume> take_over(const config::ExportOptions& options,
                                               DeviceRegistry& devices, VolumeDisposal& disposal);
    // The devices of what is left for these exports, as taking over will want them. One that cannot
    // be opened may be by then.
    void open_devices(const std::vector<config::ExportOptions>& exports, DeviceRegistry& devices);
    // New contents for this export: what `create` makes. If it throws, nothing is kept of them.
    using Create = std::function<std::shared_ptr<storage::Volume>(const storage::Keeping&)>;
    std::shared_ptr<storage::Volume> make(const config::ExportOptions& options,
                                          const Create& create);
    // Nothing of what is kept changes until go_on(), as long as no client writes: so another
    // process can take it over. Waits for what is under way. What is made or taken over meanwhile
    // rests, too.
    void rest();
    void go_on();
    // While it rests: copies of all descriptors, by their names.
    struct Copy {
        std::string name;
        OwnedFd descriptor;
    };
    std::vector<Copy> copies() const;

    // Before devices go: nothing is held here any more. What is kept, stays kept.
    void let_go();

    // What is offered now. Contents that no export has are given back when `grace` is over, which
    // the log tells, once for each. When to call again; unset: it need not be.
    struct Offered {
        std::string name;
        bool keep = false;
        std::shared_ptr<storage::Volume> volume;  // null: its contents could not be taken over
    };
    std::optional<Clock::time_point> settle(const std::vector<Offered>& offered,
                                            std::chrono::seconds grace, Clock::time_point now);

    struct Summary {
        std::string name;
        std::uint64_t size = 0;                  // bytes
        std::optional<std::uint64_t> allocated;  // bytes; unset: not taken over
        std::string devices;                     // "host, GPU-…"
        std::int64_t made = 0;                   // seconds since 1970
        std::string instance;
        std::string state;
    };
    std::vector<Summary> summaries() const;
    // Gives back what is left of an export that is not taken over. How many there were.
    std::size_t drop(const std::string& name);

 private:
    // Of an earlier server, and nobody's yet.
    struct Left {
        std::unique_ptr<storage::PageTable> table;
        std::map<std::uint32_t, std::map<std::uint32_t, OwnedFd>> slabs;
        std::vector<std::string> names;
        std::string refused;  // why it could not be taken over
        std::optional<Clock::time_point> ends;
    };
    // Of this one.
    struct Own {
        std::unique_ptr<ContentsKeeper> keeper;
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
    std::shared_ptr<storage::Volume> adopt(const std::string& id, Left& left,
                                           const config::ExportOptions& options,
                                           DeviceRegistry& devices, VolumeDisposal& disposal);
    void forget(const Left& left);
    static void give_back(Own& own);
    void settle(Left& left, const std::vector<Offered>& offered, Clock::time_point end);
    void settle(Own& own, const std::vector<Offered>& offered, Clock::time_point end);

    DescriptorStore& store_;
    const std::chrono::milliseconds patience_;
    bool resting_ = false;
    mutable std::mutex mutex_;
    std::map<std::string, Left> left_;  // by id
    std::map<std::string, Own> own_;    // by id; keepers stay as long as volumes might ask them
};

}  // namespace gpunbd::server
