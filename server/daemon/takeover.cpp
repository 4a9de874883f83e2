#include "server/daemon/takeover.hpp"

#include <spdlog/spdlog.h>

#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/daemon/worker_pool.hpp"
#include "server/exports/device_registry.hpp"
#include "server/handover/kept_contents.hpp"
#include "storage/assertions/assert.hpp"

namespace gpunbd::server {

namespace {

using Workers = std::vector<std::unique_ptr<Worker>>;

struct Unfinished {
    std::vector<std::shared_ptr<storage::Volume>> volumes;
    KeptMappings* mappings;
    std::shared_ptr<KeptMappings::Files> left = std::make_shared<KeptMappings::Files>();
};

void open_channels(storage::Channels& channels, const Unfinished& unfinished) {
    for (const auto& volume : unfinished.volumes) {
        for (storage::Device* device : volume->devices()) channels.open(*device);
    }
}

void finish(const Unfinished& unfinished) {
    const auto address = [volumes = unfinished.volumes] {
        for (const auto& volume : volumes) volume->finish_takeover();
    };
    if (unfinished.mappings == nullptr) return address();
    unfinished.mappings->undo(unfinished.left, address);
}

void finish_after_channels(const Workers& workers, std::size_t next, const Unfinished& unfinished) {
    if (next == workers.size()) return finish(unfinished);
    workers[next]->post([&workers, next, unfinished](WorkerContext& its) {
        try {
            open_channels(its.channels, unfinished);
            finish_after_channels(workers, next + 1, unfinished);
        } catch (const std::exception& error) {
            spdlog::warn("memory that was taken over stays unmapped for the CPU: {}", error.what());
        }
    });
}

// Imports the kept contents of a server that still serves, ahead of an upgrade. This shortens the
// pause of the clients.

std::vector<storage::Device*> devices_of(const storage::TableShape& shape,
                                         DeviceRegistry& registry) {
    std::vector<storage::Device*> devices;
    devices.reserve(shape.devices.size());
    for (const auto& each : shape.devices) {
        devices.push_back(&registry.open_hardware(each.identity, ""));
    }
    return devices;
}

// Opens the devices that the tables in `parts` name. Parts that cannot be imported are omitted;
// taking over those contents then fails with the reason.
KeptContents::Imported import_contents(std::vector<KeptContents::Copy> parts,
                                       DeviceRegistry& devices) {
    KeptContents::Imported imported;
    std::map<std::string, storage::TableShape> shapes;  // by id
    for (KeptContents::Copy& part : parts) {
        const auto name = parse_contents_name(part.name);
        if (!name || name->part.kind != ContentsPart::Kind::table) continue;
        if (imported.contains(name->id)) continue;  // of a volume that shares the slabs
        const auto table = storage::PageTable::open(std::move(part.descriptor));
        const auto* const opened = std::get_if<storage::PageTable>(&table);
        if (opened == nullptr) continue;
        try {
            imported[name->id] =
                std::make_unique<storage::ImportedSlabs>(devices_of(opened->shape(), devices));
            shapes.emplace(name->id, opened->shape());
        } catch (const std::runtime_error&) {
            imported.erase(name->id);
        }
    }
    for (KeptContents::Copy& part : parts) {
        const auto name = parse_contents_name(part.name);
        if (!name || name->part.kind != ContentsPart::Kind::slab || part.entry.pages == 0) continue;
        const auto shape = shapes.find(name->id);
        if (shape == shapes.end()) continue;
        const storage::SlabRecord record{.bytes = part.entry.pages * shape->second.page_size,
                                         .provision = shape->second.provision,
                                         .kind = part.entry.kind};
        imported.at(name->id)->import(name->part.device, name->part.slab, part.entry, record,
                                      std::move(part.descriptor));
    }
    return imported;
}

constexpr auto store_timeout = std::chrono::seconds(10);

}  // namespace

void finish_taking_over(const Workers& workers, const ExportRegistry::Exports& exports,
                        KeptMappings* mappings) {
    Unfinished unfinished{.volumes = {}, .mappings = mappings};
    for (const auto& each : exports) {
        if (!each->volume->takeover_finished()) unfinished.volumes.push_back(each->volume);
    }
    if (mappings != nullptr) *unfinished.left = mappings->take_left();
    if (unfinished.volumes.empty() && unfinished.left->empty()) return;
    finish_after_channels(workers, 0, unfinished);
}

Takeover::Takeover(ServerContext& context, WorkerPool& workers, const ExportService& exports,
                   ConnectionDispatcher& dispatcher, ServerControl& control)
    : context_(context),
      workers_(workers),
      exports_(exports),
      dispatcher_(dispatcher),
      control_(control) {
    GPUNBD_ASSERT(context.supervision.predecessor, "a server takes over from a predecessor");
}

// The predecessor serves until take_rest(), so slow work is done before. With one H200 and 64 GiB
// in use, importing the slabs takes 250 ms, and opening the channels of 16 workers 350 ms.
void Takeover::import_contents() {
    Supervision& supervision = context_.supervision;
    Predecessor& predecessor = *supervision.predecessor;
    if (!supervision.store) {
        throw std::runtime_error("no supervisor stores the contents that are taken over");
    }
    std::vector<storage::Device*> devices;
    for (const std::string& identity : predecessor.devices()) {
        devices.push_back(&context_.devices.open_hardware(identity, ""));
    }
    workers_.start();
    for (std::future<void>& each : open_channels(workers_.workers(), devices)) each.get();
    KeptContents::Imported imported =
        server::import_contents(predecessor.take_contents_to_import(), context_.devices);
    std::size_t slabs = 0;
    for (const auto& [unused, each] : imported) slabs += each->size();
    spdlog::info("upgrade: imported {} slab{} while the earlier process still serves", slabs,
                 slabs == 1 ? "" : "s");
    Predecessor::Rest rest = predecessor.take_rest();
    for (auto& each : rest.contents) {
        supervision.store->add_kept(each.name);
        supervision.descriptors.add(each.name, std::move(each.descriptor));
    }
    context_.kept.origin_locks = std::move(rest.origin_locks);
    GPUNBD_ASSERT(clients_.empty(), "connections are taken over once");
    clients_ = std::move(rest.clients);
    auto& contents = context_.kept.contents;
    contents = std::make_unique<KeptContents>(*supervision.store, supervision.descriptors,
                                              store_timeout, std::move(imported));
    contents->quiesce();
}

void Takeover::start() {
    if (!exports_.refused().empty()) throw std::runtime_error(exports_.refused().front().why);
    context_.supervision.predecessor->wait_until_active();
    context_.supervision.release_messages();
    context_.kept.contents->resume();
    context_.kept.origin_locks.clear();  // of exports that this server does not have
    spdlog::info("serving in place of an earlier process, with {} of its connections",
                 clients_.size());
    for (Predecessor::Client& client : std::exchange(clients_, {})) {
        dispatcher_.take_over(std::move(client));
    }
    control_.taken_over();
}

}  // namespace gpunbd::server
