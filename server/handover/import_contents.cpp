#include "server/handover/import_contents.hpp"

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace gpunbd::server {

namespace {

std::vector<storage::Device*> devices_of(const storage::TableShape& shape,
                                         DeviceRegistry& registry) {
    std::vector<storage::Device*> devices;
    devices.reserve(shape.devices.size());
    for (const auto& each : shape.devices) {
        devices.push_back(&registry.open_hardware(each.identity, ""));
    }
    return devices;
}

}  // namespace

RetainedContents::Imported import_contents(std::vector<RetainedContents::Copy> parts,
                                           DeviceRegistry& devices) {
    RetainedContents::Imported imported;
    std::map<std::string, storage::TableShape> shapes;  // by id
    for (RetainedContents::Copy& part : parts) {
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
    for (RetainedContents::Copy& part : parts) {
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

}  // namespace gpunbd::server
