#include "storage/pages/page_table.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/memory_file.hpp"

namespace gpunbd::storage {

namespace {

constexpr std::uint64_t table_magic = 0x31656c6261546e67;  // "gnTable1"
constexpr std::uint32_t version_of_clone = 5;              // of a cache
constexpr std::uint32_t version_of_cache = 4;
constexpr std::uint32_t table_version = 3;  // of other volumes
constexpr std::uint32_t version_without_names = 2;
constexpr std::uint32_t version_without_sizes = 1;
constexpr std::uint64_t size_words = 2;
// No table can have this size, so a gpunbd that does not know the mark refuses the table.
constexpr std::uint64_t incomplete_mark = 0xffffffff4c4c4946;
constexpr std::size_t memory_page = 4096;     // bytes
constexpr std::uint32_t max_text = 64 << 10;  // bytes
constexpr std::uint64_t max_pages = std::uint64_t{1} << 40;
// At the end of the file: the number of the name in use, and two names, each with its length before
// it. They begin at memory pages, and take memory only once they are written.
constexpr std::uint64_t room_for_name = 2 * memory_page;
constexpr std::uint64_t room_for_names = memory_page + 2 * room_for_name;
static_assert(sizeof(std::uint64_t) + PageTable::max_name <= room_for_name);
constexpr const char* contradiction = "its header is inconsistent";

struct Header {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t checksum;  // CRC-32 of the head, computed with 0 here
    std::uint64_t bytes;     // of the whole table
    std::uint64_t words;     // the offset of what follows the head
    std::uint64_t size;
    std::uint64_t page_size;
    std::uint64_t stripe_size;
    std::int64_t made;
    std::uint8_t instance[16];
    std::uint16_t provision;
    std::uint16_t spills;  // the last ones of `devices`
    std::uint32_t devices;
    std::uint32_t name;    // bytes; follows the device records
    std::uint32_t wanted;  // bytes; follows the name
};
static_assert(sizeof(Header) == 96);

std::uint64_t in_memory_pages(std::uint64_t bytes) {
    return (bytes + memory_page - 1) / memory_page * memory_page;
}

std::uint64_t head_bytes(std::uint64_t devices, std::uint64_t texts) {
    return in_memory_pages(sizeof(Header) + devices * sizeof(DeviceRecord) + texts);
}

// The end of the entries for so many pages.
std::uint64_t table_bytes(const TableShape& shape, std::uint64_t head, std::uint64_t pages,
                          std::uint32_t version = table_version) {
    std::uint64_t words = pages + (version == version_without_sizes ? 0 : size_words);
    if (shape.is_cache) words += KeptCache::words_for(pages);
    if (shape.is_clone_of_cache) words += KeptClone::words_for(pages);
    for (const TableShape::DeviceShare& device : shape.devices) words += device.slabs;
    return in_memory_pages(head + words * sizeof(std::uint64_t));
}

std::uint32_t checksum(const std::byte* base, std::size_t head) {
    boost::crc_32_type crc;
    constexpr std::size_t at = offsetof(Header, checksum);
    constexpr std::uint32_t none = 0;
    crc.process_bytes(base, at);
    crc.process_bytes(&none, sizeof none);
    crc.process_bytes(base + at + sizeof none, head - at - sizeof none);
    return crc.checksum();
}

void write_head(std::byte* base, const TableShape& shape, std::uint64_t head, std::uint64_t bytes) {
    Header header{.magic = table_magic,
                  .version = shape.is_cache            ? version_of_cache
                             : shape.is_clone_of_cache ? version_of_clone
                                                       : table_version,
                  .checksum = 0,
                  .bytes = bytes,
                  .words = head,
                  .size = shape.size,
                  .page_size = shape.page_size,
                  .stripe_size = shape.stripe_size,
                  .made = shape.made,
                  .instance = {},
                  .provision = static_cast<std::uint16_t>(shape.provision),
                  .spills = static_cast<std::uint16_t>(shape.spills),
                  .devices = static_cast<std::uint32_t>(shape.devices.size()),
                  .name = static_cast<std::uint32_t>(shape.name.size()),
                  .wanted = static_cast<std::uint32_t>(shape.wanted.size())};
    std::copy(shape.instance.begin(), shape.instance.end(), header.instance);
    std::memcpy(base, &header, sizeof header);
    std::byte* at = base + sizeof header;
    for (const TableShape::DeviceShare& device : shape.devices) {
        const DeviceRecord record = DeviceRecord::of(device);
        std::memcpy(at, &record, sizeof record);
        at += sizeof record;
    }
    std::memcpy(at, shape.name.data(), shape.name.size());
    std::memcpy(at + shape.name.size(), shape.wanted.data(), shape.wanted.size());
    header.checksum = checksum(base, head);
    std::memcpy(base, &header, sizeof header);
}

// Bytes of addresses, and of the file of a kept table, that a table may grow into. They cost no
// memory.
std::uint64_t room_to_grow(std::uint64_t bytes, bool kept) {
    return std::max(std::uint64_t{kept ? 4U : 64U} << 20, 3 * bytes);
}

// Of a new table without a descriptor, or of a file. They cannot be accessed yet, so that locking
// the memory of the process does not allocate the room of the table. Null: none.
std::byte* reserve(std::uint64_t bytes, const OwnedFd& file) {
    const int flags = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* const mapped = ::mmap(nullptr, bytes, PROT_NONE, flags, file ? file.get() : -1, 0);
    return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

// The names are read and written by calls, so that they need no accessible addresses.
bool write_at(int file, std::uint64_t offset, const void* bytes, std::size_t count) {
    return ::pwrite(file, bytes, count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count);
}

bool read_at(int file, std::uint64_t offset, void* bytes, std::size_t count) {
    return ::pread(file, bytes, count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count);
}

// `number`: 1 or 2.
std::uint64_t offset_of_name(std::uint64_t table, std::uint64_t number) {
    return table - room_for_names + memory_page + (number - 1) * room_for_name;
}

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// Returns the reason why the header is invalid; empty: it is valid.
std::string header_error(const Header& header, std::uint64_t bytes) {
    if (header.magic != table_magic) return "it is not a page table of gpunbd";
    if (header.version < version_without_sizes || header.version > version_of_clone) {
        return fmt::format("its format is {}, and this gpunbd supports {}", header.version,
                           version_of_clone);
    }
    if (header.bytes != bytes) {
        return fmt::format("it has {} bytes, and its header records {}", bytes, header.bytes);
    }
    if (header.devices == 0 || header.devices > max_devices || header.name > max_text ||
        header.wanted > max_text || header.size == 0 || !std::has_single_bit(header.page_size) ||
        header.size > std::numeric_limits<std::uint64_t>::max() - header.page_size ||
        header.stripe_size % header.page_size != 0 ||
        header.provision > static_cast<std::uint16_t>(Provision::full) ||
        header.spills >= header.devices || header.size / header.page_size >= max_pages ||
        header.words != head_bytes(header.devices, std::uint64_t{header.name} + header.wanted) ||
        header.words > bytes) {
        return contradiction;
    }
    return {};
}

// Each page number costs memory, so there may be less than twice as many as pages. If pages move,
// each pool has one more slab.
bool is_valid(const DeviceRecord& record, bool pages_move) {
    const std::uint64_t numbers = std::uint64_t{record.slab_pages} * record.slabs;
    if (record.slabs == 0) {  // the directory is elsewhere
        return std::has_single_bit(record.slab_pages) && record.pages <= DeviceRecord::max_pages;
    }
    return std::has_single_bit(record.slab_pages) && record.pages <= numbers &&
           numbers <= DeviceRecord::max_pages &&
           numbers < (pages_move ? 4 : 2) * std::max<std::uint64_t>(record.pages, 1);
}

std::variant<TableShape, std::string> read_shape(const std::byte* base, std::uint64_t bytes) {
    Header header{};
    std::memcpy(&header, base, sizeof header);
    if (std::string reason = header_error(header, bytes); !reason.empty()) return reason;
    if (checksum(base, header.words) != header.checksum) return "its checksum is wrong";
    TableShape shape{.name = {},
                     .wanted = {},
                     .made = header.made,
                     .size = header.size,
                     .page_size = header.page_size,
                     .stripe_size = header.stripe_size,
                     .provision = static_cast<Provision>(header.provision),
                     .devices = {},
                     .spills = header.spills,
                     .is_cache = header.version == version_of_cache,
                     .is_clone_of_cache = header.version == version_of_clone};
    std::copy(std::begin(header.instance), std::end(header.instance), shape.instance.begin());
    const std::byte* at = base + sizeof header;
    std::uint64_t pages = 0;
    for (std::uint32_t i = 0; i != header.devices; ++i, at += sizeof(DeviceRecord)) {
        DeviceRecord record{};
        std::memcpy(&record, at, sizeof record);
        if (!is_valid(record, header.spills != 0)) return contradiction;
        const std::uint32_t layout_devices = header.devices - header.spills;
        if (record.home >= layout_devices) return contradiction;
        // All directories are here, or none.
        if (i != 0 && (record.slabs == 0) != (shape.devices[0].slabs == 0)) return contradiction;
        if (i < layout_devices) pages += record.pages;
        shape.devices.push_back(record.share());
    }
    const auto* const texts = reinterpret_cast<const char*>(at);
    shape.name.assign(texts, header.name);
    shape.wanted.assign(texts + header.name, header.wanted);
    std::uint64_t needed = table_bytes(shape, header.words, shape.pages(), header.version);
    if (header.version > version_without_names) needed += room_for_names;
    const bool is_long_enough =
        header.version == version_without_sizes ? needed == bytes : needed <= bytes;
    const bool has_pages = shape.is_cache ? pages <= shape.pages() : pages == shape.pages();
    const bool has_its_layout =
        !shape.has_fixed_size() ||
        (header.devices == 1 && shape.devices[0].slabs != 0 && shape.stripe_size == 0);
    if (!has_pages || !has_its_layout || !is_long_enough) return contradiction;
    return shape;
}

}  // namespace

InstanceId new_instance() {
    InstanceId id{};
    if (::getentropy(id.data(), id.size()) != 0) fail("no random numbers are available");
    return id;
}

std::string instance_text(const InstanceId& id) { return fmt::format("{:02x}", fmt::join(id, "")); }

PageTable::PageTable(TableShape shape, bool kept, std::uint64_t size, bool complete)
    : shape_(std::move(shape)),
      name_(shape_.name),
      has_names_(kept),
      size_(size != 0 ? size : shape_.size),
      complete_(complete) {
    GPUNBD_ASSERT(size_ != 0, "a volume is not empty");
    GPUNBD_ASSERT(shape_.devices.size() > shape_.spills, "a volume has a device of its layout");
    const std::uint64_t head =
        head_bytes(shape_.devices.size(), shape_.name.size() + shape_.wanted.size());
    const std::uint64_t used = table_bytes(shape_, head, std::max(shape_.pages(), pages()));
    GPUNBD_ASSERT(kept || !shape_.is_cache, "only a kept table has the marks of a cache");
    bytes_ = used + (kept ? room_for_names : 0);
    if (!shape_.has_fixed_size()) bytes_ += room_to_grow(used, kept);
    if (kept && !(descriptor_ = make_memory_file(bytes_))) fail("no memory for a page table");
    base_ = reserve(bytes_, descriptor_);
    if (base_ == nullptr) fail("no memory for a page table");
    if (::mprotect(base_, used, PROT_READ | PROT_WRITE) != 0) {
        const int error = errno;
        ::munmap(base_, bytes_);
        errno = error;
        fail("no memory for a page table");
    }
    write_head(base_, shape_, head, bytes_);
    set_parts(head, true);
    set_slots(used);
    set_size(size_);
}

std::variant<PageTable, std::string> PageTable::open(OwnedFd descriptor) {
    struct stat file {};
    if (::fstat(descriptor.get(), &file) != 0) return std::string("it is not a descriptor");
    const auto bytes = static_cast<std::uint64_t>(file.st_size);
    if (std::string reason = memory_file_error(descriptor, bytes); !reason.empty()) return reason;
    if (bytes < memory_page) return std::string("it is too short");
    std::byte* const base = reserve(bytes, descriptor);
    const auto cannot_map = [] {
        return fmt::format("it cannot be mapped: {}", std::generic_category().message(errno));
    };
    if (base == nullptr) return cannot_map();
    // From here on the destructor unmaps the table, also if reading its head throws.
    PageTable table(std::move(descriptor), base, bytes);
    // The head and the sizes are read first; what follows is accessible once they are valid.
    const auto allow = [&](std::uint64_t up_to) {
        return ::mprotect(base, up_to, PROT_READ | PROT_WRITE) == 0;
    };
    if (!allow(memory_page)) return cannot_map();
    Header header{};
    std::memcpy(&header, base, sizeof header);
    if (std::string reason = header_error(header, bytes); !reason.empty()) return reason;
    if (!allow(std::min(bytes, header.words + memory_page))) return cannot_map();
    auto shape = read_shape(base, bytes);
    if (auto* const reason = std::get_if<std::string>(&shape)) return std::move(*reason);
    table.shape_ = std::move(std::get<TableShape>(shape));
    table.has_names_ = header.version > version_without_names;
    if (!table.read_name()) return std::string(contradiction);
    table.set_parts(header.words, header.version != version_without_sizes);
    table.size_ =
        table.sizes_ == nullptr ? table.shape_.size : std::atomic_ref(table.sizes_->current).load();
    table.complete_ = table.size_ != incomplete_mark;
    if (!table.complete()) table.size_ = table.shape_.size;
    const std::uint64_t size = table.size();
    const std::uint64_t page_size = table.shape_.page_size;
    if (size == 0 || size > std::numeric_limits<std::uint64_t>::max() - page_size ||
        size / page_size >= max_pages ||
        (table.shape_.has_fixed_size() && size != table.shape_.size)) {
        return std::string(contradiction);
    }
    const std::uint64_t used = table_bytes(
        table.shape_, header.words, std::max(table.shape_.pages(), table.pages()), header.version);
    if (used > table.end_of_room()) return std::string(contradiction);
    if (!allow(used)) return cannot_map();
    table.set_slots(used);
    return table;
}

PageTable::PageTable(OwnedFd descriptor, std::byte* base, std::size_t bytes) noexcept
    : descriptor_(std::move(descriptor)), base_(base), bytes_(bytes) {}

PageTable::PageTable(PageTable&& other) noexcept
    : shape_(std::move(other.shape_)),
      name_(std::move(other.name_)),
      has_names_(other.has_names_),
      name_in_use_(other.name_in_use_),
      size_(other.size_.load()),
      slots_(other.slots_.load()),
      complete_(other.complete_.load()),
      descriptor_(std::move(other.descriptor_)),
      base_(std::exchange(other.base_, nullptr)),
      bytes_(other.bytes_),
      sizes_(other.sizes_),
      slabs_(other.slabs_),
      entries_(other.entries_) {}

PageTable::~PageTable() {
    if (base_ != nullptr) ::munmap(base_, bytes_);
}

void PageTable::set_parts(std::uint64_t head, bool has_sizes) {
    auto* const words = reinterpret_cast<std::uint64_t*>(base_ + head);
    std::uint64_t slabs = 0;
    for (const TableShape::DeviceShare& device : shape_.devices) slabs += device.slabs;
    if (has_sizes) {
        sizes_ = reinterpret_cast<Sizes*>(words);
        slabs_ = words + size_words;
        entries_ = slabs_ + slabs;
    } else {
        entries_ = words;
        slabs_ = words + shape_.pages();
    }
}

// `accessible`: the bytes of the table that can be accessed.
void PageTable::set_slots(std::uint64_t accessible) {
    const auto before = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(entries_) - base_);
    const std::uint64_t slots = (accessible - before) / sizeof(std::uint64_t);
    GPUNBD_ASSERT(!can_resize() || slots >= slots_.load(std::memory_order_relaxed),
                  "entries that were accessible stay accessible");
    slots_.store(can_resize() ? slots : shape_.pages(), std::memory_order_release);
}

bool PageTable::make_room(std::uint64_t size) {
    const std::uint64_t wanted = (size - 1) / shape_.page_size + 1;
    if (wanted <= slots()) return true;
    const auto before = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(entries_) - base_);
    if (!can_resize() || wanted > (end_of_room() - before) / sizeof(std::uint64_t)) {
        return false;
    }
    const std::uint64_t from = in_memory_pages(before + slots() * sizeof(std::uint64_t));
    const std::uint64_t to = in_memory_pages(before + wanted * sizeof(std::uint64_t));
    if (::mprotect(base_ + from, to - from, PROT_READ | PROT_WRITE) != 0) return false;
    set_slots(to);
    return true;
}

void PageTable::set_size(std::uint64_t size) {
    GPUNBD_ASSERT(sizes_ != nullptr, "the size in a format without sizes does not change");
    GPUNBD_ASSERT((size - 1) / shape_.page_size < slots(),
                  "the entries of a larger size are accessible before it is set");
    size_.store(size, std::memory_order_relaxed);
    std::atomic_ref(sizes_->current).store(complete() ? size : incomplete_mark);
}

bool PageTable::set_complete(bool complete) {
    if (sizes_ == nullptr) return false;
    complete_ = complete;
    set_size(size());
    return true;
}

std::uint64_t PageTable::configured_size() const {
    return sizes_ == nullptr ? 0 : std::atomic_ref(sizes_->configured).load();
}

void PageTable::set_configured_size(std::uint64_t size) {
    GPUNBD_ASSERT(sizes_ != nullptr, "a format without sizes has no configured size");
    std::atomic_ref(sizes_->configured).store(size);
}

std::uint64_t PageTable::end_of_room() const { return bytes_ - (has_names_ ? room_for_names : 0); }

bool PageTable::read_name() {
    const Lock lock(name_mutex_);
    name_ = shape_.name;
    if (!has_names_) return true;
    if (!read_at(descriptor_.get(), end_of_room(), &name_in_use_, sizeof name_in_use_))
        return false;
    if (name_in_use_ == 0) return true;
    if (name_in_use_ > 2) return false;
    const std::uint64_t at = offset_of_name(bytes_, name_in_use_);
    std::uint64_t length = 0;
    if (!read_at(descriptor_.get(), at, &length, sizeof length) || length > max_name) return false;
    name_.resize(length);
    return read_at(descriptor_.get(), at + sizeof length, name_.data(), length);
}

std::string PageTable::name() const {
    const Lock lock(name_mutex_);
    return name_;
}

bool PageTable::write_next_name(const std::string& name) const {
    if (name.size() > max_name) {
        errno = ENAMETOOLONG;
        return false;
    }
    const std::uint64_t at = offset_of_name(bytes_, next_name());
    const std::uint64_t length = name.size();
    return write_at(descriptor_.get(), at, &length, sizeof length) &&
           write_at(descriptor_.get(), at + sizeof length, name.data(), name.size());
}

bool PageTable::write_name_in_use(std::uint64_t number) const {
    return write_at(descriptor_.get(), end_of_room(), &number, sizeof number);
}

bool PageTable::prepare_name(const std::string& name) {
    return !has_names_ || (write_next_name(name) && write_name_in_use(name_in_use_));
}

bool PageTable::set_name(const std::string& name) {
    if (has_names_) {
        const std::uint64_t next = next_name();
        if (!write_next_name(name) || !write_name_in_use(next)) return false;
        name_in_use_ = next;
    }
    const Lock lock(name_mutex_);
    name_ = name;
    return true;
}

SlabDirectory PageTable::slabs(std::uint32_t device) const {
    GPUNBD_ASSERT(device < shape_.devices.size(),
                  "a table has the slabs of the devices with which it was made");
    std::uint64_t* words = slabs_;
    for (std::uint32_t i = 0; i != device; ++i) words += shape_.devices[i].slabs;
    return {words, shape_.devices[device].slabs};
}

}  // namespace gpunbd::storage
