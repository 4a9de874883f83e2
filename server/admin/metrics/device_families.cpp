#include "server/admin/metrics/families.hpp"

namespace gpunbd::server {

namespace {

struct DeviceNumber {
    MetricFamily family;
    std::uint64_t DeviceStatus::*value;
};

constexpr DeviceNumber device_numbers[] = {
    {{"gpunbd_device_memory_size_bytes", MetricType::gauge, "Memory of the device, in all."},
     &DeviceStatus::total},
    {{"gpunbd_device_memory_available_bytes", MetricType::gauge,
      "Memory that can still be allocated."},
     &DeviceStatus::available},
    {{"gpunbd_device_memory_reserve_bytes", MetricType::gauge, "Memory that is left to others."},
     &DeviceStatus::reserve},
    {{"gpunbd_device_memory_mapped_bytes", MetricType::gauge, "Memory that the CPU addresses."},
     &DeviceStatus::mapped},
    {{"gpunbd_device_memory_allocated_bytes", MetricType::gauge,
      "Memory that the server has allocated."},
     &DeviceStatus::allocated},
    {{"gpunbd_device_memory_used_bytes", MetricType::gauge, "Memory of pages that exports use."},
     &DeviceStatus::used},
    {{"gpunbd_device_slabs", MetricType::gauge, "Pieces in which memory is allocated."},
     &DeviceStatus::slabs},
    {{"gpunbd_device_staging_bytes", MetricType::gauge, "Pinned memory through which copies go."},
     &DeviceStatus::staging},
    {{"gpunbd_device_staging_used_bytes", MetricType::gauge,
      "Pinned memory that transfers hold now."},
     &DeviceStatus::staging_used},
    {{"gpunbd_device_staging_waits", MetricType::counter,
      "Transfers that had to wait for pinned memory."},
     &DeviceStatus::staging_waits},
    {{"gpunbd_device_copy_failures", MetricType::counter, "Copies that failed."},
     &DeviceStatus::failures},
    {{"gpunbd_device_competition_noticed", MetricType::counter,
      "How often other programs were noticed to begin to compute."},
     &DeviceStatus::competition_noticed},
};

struct CopyNumber {
    MetricFamily family;
    std::uint64_t CopyStatus::*value;
};

constexpr CopyNumber copy_numbers[] = {
    {{"gpunbd_device_copies", MetricType::counter, "Copies, by the way that they went."},
     &CopyStatus::copies},
    {{"gpunbd_device_copied_bytes", MetricType::counter, "What those copied."}, &CopyStatus::bytes},
};

void add_states(Exposition& out, const std::vector<DeviceStatus>& devices) {
    out.family({"gpunbd_device", MetricType::info, "The devices, and what they are called."});
    for (const DeviceStatus& each : devices) out.add({{"device", each.id}, {"name", each.name}});
    out.family({"gpunbd_device_failed", MetricType::gauge, "1: the device has failed for good."});
    for (const DeviceStatus& each : devices) out.add({{"device", each.id}}, each.failed);
    out.family({"gpunbd_device_others_compute", MetricType::gauge,
                "1: other programs compute there; missing where that is not known."});
    for (const DeviceStatus& each : devices) {
        if (each.others_compute) out.add({{"device", each.id}}, *each.others_compute);
    }
}

void add_copies(Exposition& out, const DeviceStatus& device, std::uint64_t CopyStatus::*value) {
    for (const CopyStatus& each : device.copies) {
        out.add({{"device", device.id}, {"path", each.path}, {"direction", each.direction}},
                each.*value);
    }
}

}  // namespace

void add_device_metrics(Exposition& out, const Status& status) {
    add_states(out, status.devices);
    for (const DeviceNumber& number : device_numbers) {
        out.family(number.family);
        for (const DeviceStatus& each : status.devices) {
            out.add({{"device", each.id}}, each.*number.value);
        }
    }
    for (const CopyNumber& number : copy_numbers) {
        out.family(number.family);
        for (const DeviceStatus& each : status.devices) add_copies(out, each, number.value);
    }
}

}  // namespace gpunbd::server
