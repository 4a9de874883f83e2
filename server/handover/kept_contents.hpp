// The contents of exports that are kept beyond the end of a server: those of an earlier
// server, and those of this server. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "config/options.hpp"
#include "server/base/expected.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/handover/supervisor_parts.hpp"
#include "server/supervisor/passed_descriptors.hpp"
#include "storage/base/mutex.hpp"
#include "storage/pages/imported_slabs.hpp"
#include "storage/pages/shared_directory.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::server {

// The requirements of an export's configuration on its volume, as text. Contents that were made for
// other requirements are not used.
std::string wanted_of(const config::ExportOptions& options);

class KeptContents {
 public:
    using Clock = std::chrono::steady_clock;

    // Takes the descriptors of an earlier server out of `handed_over`. The store outlives this
    // object and all volumes. The devices and the disposal passed later outlive this object.
    // `patience`: the time to wait for a busy supervisor. `imported`: slabs of these contents that
    // are already mapped.
    using Imported = std::map<std::string, std::unique_ptr<storage::ImportedSlabs>>;  // by id
    KeptContents(DescriptorStore& store, PassedDescriptors& handed_over,
                 std::chrono::milliseconds patience = std::chrono::seconds(10),
                 Imported imported = {});
    KeptContents(const KeptContents&) = delete;
    KeptContents& operator=(const KeptContents&) = delete;

    // Gives earlier contents the names of the exports that have them, before any are taken over:
    // a server may have been killed while it renamed an export, after it had stored the options.
    void finish_renames(const config::ExportList& exports);
    // Takes over the earlier contents of this export, together with those that share pages with
    // it. Null: there are none. If it throws, std::runtime_error has the reason, and the contents
    // are unchanged for a later attempt.
    std::shared_ptr<storage::Volume> take_over(const config::ExportOptions& options,
                                               DeviceRegistry& devices, VolumeDisposal& disposal);
    // Takes over the earlier contents that no export has, so that their memory is counted and can
    // be moved. The state of those for which this fails has the reason.
    void take_over_unused(DeviceRegistry& devices, VolumeDisposal& disposal);
    // Opens the devices that take_over() will need for these exports. Ignores failures.
    void open_devices(const config::ExportList& exports, DeviceRegistry& devices);
    // Calls `create` for new contents of this export. If it throws, nothing is kept. `source`: kept
    // contents with which they share pages; null: none.
    using Create = std::function<std::shared_ptr<storage::Volume>(const storage::KeepOptions&)>;
    std::shared_ptr<storage::Volume> make(const config::ExportOptions& options,
                                          const Create& create,
                                          const storage::Volume* source = nullptr);
    // Until resume(), caches begin no work that no client waits for: see PageCache::pause().
    void pause_caches();
    bool caches_paused() const;
    // Until resume(), kept contents change only by client writes, so that another process can take
    // them over. Waits for operations in progress. Contents created or taken over meanwhile are
    // quiesced as well.
    void quiesce();
    // Lets another process use what caches have in memory. Once they are paused, and quiesced. A
    // text is the reason for users why they must not be handed over.
    std::optional<std::string> hand_over_caches();
    // Copies of the locks on the origins of these caches, with the names of the origins.
    std::map<std::string, OwnedFd> origin_locks() const;
    void resume();
    // Throws if contents that no export has contain changes that the origin of this name and id
    // lacks: then no other volume than `own`, which may be null, may use it.
    void check_origin(const std::string& origin, const storage::SourceId& id,
                      const storage::Volume* own) const;
    // Copies of all descriptors with their names: tables, and slabs with their directory entries.
    // Unless quiesced, slabs can be added and removed meanwhile.
    struct Copy {
        std::string name;
        storage::SlabEntry entry;  // of a slab
        OwnedFd descriptor;
    };
    std::vector<Copy> copies() const;

    // Passes the current exports. Frees contents without an export after `grace`; logs this once
    // for each. Retries messages that could not be sent to the supervisor. Returns the time of the
    // next call; unset: none is needed.
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
    // Frees contents of that name that no export uses. Returns their number.
    std::size_t drop(const std::string& name);
    // Whether the export of this volume can have this name; then rename() has the memory that it
    // needs. An error is for users. Contents of a removed export that have the name stay as they
    // are.
    Expected<void> prepare_rename(storage::Volume& volume, const std::string& name) const;
    // Changes the name by one store. Call it after prepare_rename(), and once the options are
    // stored with the new name.
    void rename(storage::Volume& volume, const std::string& name);
    // The volume is not kept any longer: it is freed with its export, or once its origin has all of
    // it.
    void drop(const storage::Volume& volume);

    // Contents that no export has, as of the last settle(). Never waits for a takeover in progress.
    struct Unused {
        std::string name;
        std::uint64_t size = 0;                 // bytes; 0: not known
        std::weak_ptr<storage::Volume> volume;  // null: not taken over
        std::string state;                      // as in Summary
        std::optional<Clock::time_point> ends;  // unset: not before an export has taken them
    };
    std::vector<Unused> unused() const;
    // Of the contents without an export that have memory on this device, frees those with the
    // earliest end. Returns false if there are none. Contents without an end, and those that
    // something else still uses, are never freed here.
    bool drop_unused(const storage::Device& device);

 private:
    // What contents that share pages have in common. They are taken over together.
    struct SharedParts {
        std::shared_ptr<const storage::SharedDirectory> directory;  // null: there is none
        storage::Volume::Descriptors slabs;
        std::string unusable;  // the reason why they cannot be taken over; empty: none
    };
    // Contents of an earlier server that are not taken over. After drop_volume(), the entry waits
    // only for the supervisor.
    struct EarlierContents {
        std::unique_ptr<storage::PageTable> table;  // null: unreadable
        std::shared_ptr<SharedParts> parts;
        std::shared_ptr<VolumeParts> kept_parts;
        std::string refused;    // the reason why they could not be taken over
        bool unusable = false;  // take_over_unused() has failed
        std::optional<Clock::time_point> ends;
    };
    // Contents of this server are in one of four states:
    //
    //   Making -> InUse             make() has the volume, or has failed
    //   Taken -> InUse              settle(): an export has them
    //   Taken -> WithoutExport      settle(): the configuration of the export was rejected
    //   InUse -> WithoutExport      settle(): their export was removed
    //   WithoutExport -> Taken      take_over()
    //   WithoutExport -> InUse      they are freed
    //
    // Those of an earlier server begin as Taken or WithoutExport.
    struct Making {};
    // Taken over for an export, until settle() decides whether the export exists: its configuration
    // can still be rejected.
    struct Taken {
        std::shared_ptr<storage::Volume> volume;
    };
    struct WithoutExport {
        std::shared_ptr<storage::Volume> volume;  // held until it is freed
        std::optional<Clock::time_point> ends = {};
        // They were taken over from an earlier server and no export of this one has had them.
        bool is_unclaimed = false;
        std::string refused = {};  // if unclaimed: the reason why their export does not have them
    };
    // An export has them, or had them and they are being freed.
    struct InUse {
        std::weak_ptr<storage::Volume> volume;
    };
    struct OwnContents {
        std::shared_ptr<VolumeParts> kept_parts;  // shared with the volume
        std::string name;
        std::variant<Making, Taken, WithoutExport, InUse> state;

        std::shared_ptr<storage::Volume> volume() const;  // null: not made yet, or freed
        bool is_made() const { return !std::holds_alternative<Making>(state); }
        WithoutExport* without_export() { return std::get_if<WithoutExport>(&state); }
        const WithoutExport* without_export() const { return std::get_if<WithoutExport>(&state); }
    };

    using Earlier = std::map<std::string, EarlierContents>;
    std::shared_ptr<storage::Volume> find_contents(const config::ExportOptions& options,
                                                   DeviceRegistry& devices,
                                                   VolumeDisposal& disposal) REQUIRES(mutex_);
    std::shared_ptr<storage::Volume> held_for(const config::ExportOptions& options)
        REQUIRES(mutex_);
    Earlier::iterator find_earlier(const config::ExportOptions& options) REQUIRES(mutex_);
    std::shared_ptr<storage::Volume> take_over(const Earlier::iterator& found,
                                               const config::ExportOptions& options,
                                               DeviceRegistry& devices, VolumeDisposal& disposal,
                                               bool for_export = true) REQUIRES(mutex_);
    void add_earlier(const std::string& id, PassedDescriptors& handed_over,
                     const std::vector<ContentsPart>& parts);
    std::shared_ptr<SupervisorParts> parts_of(const storage::Volume& volume) const;
    // Creates an entry as a map node, so that inserting it into own_ cannot fail.
    std::map<std::string, OwnContents> prepare_own(const std::string& id, const std::string& name,
                                                   std::shared_ptr<VolumeParts> kept_parts) const;
    template <typename Call>
    void for_each_cache(Call call) const;
    static void drop_contents(EarlierContents& earlier);
    static void drop_contents(OwnContents& own);
    // The exports that settle() gets.
    struct Users {
        std::unordered_map<const storage::Volume*, const Offered*> by_volume;
        std::unordered_set<std::string_view> refused;  // those without a volume
    };
    void settle(EarlierContents& earlier, const Users& users, Clock::time_point end);
    void settle(OwnContents& own, const Users& users, Clock::time_point now,
                std::chrono::seconds grace);
    // After each change of what no export has.
    void list_unused() REQUIRES(mutex_);

    DescriptorStore& store_;
    const std::chrono::milliseconds patience_;
    mutable Mutex mutex_;
    bool quiesced_ GUARDED_BY(mutex_) = false;
    Earlier earlier_ GUARDED_BY(mutex_);  // by id
    // Names of exports with incomplete contents. Until settle(), these exports get new contents,
    // even if contents of an earlier export of the name are kept.
    std::unordered_set<std::string> incomplete_ GUARDED_BY(mutex_);
    std::map<std::string, OwnContents> own_ GUARDED_BY(mutex_);  // by id
    Imported imported_ GUARDED_BY(mutex_);  // until resume(), which releases the rest
    mutable Mutex unused_mutex_;            // taken last, and held for short
    std::vector<Unused> unused_ GUARDED_BY(unused_mutex_);
};

}  // namespace gpunbd::server
