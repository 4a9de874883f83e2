// A fake PCI card: a sysfs folder with regular files as BARs.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/temporary_folder.hpp"

namespace gpunbd::storage::test {

class FakeCard : public gpunbd::test::TemporaryFolder {
 public:
    static constexpr const char* address = "0000:01:00.0";
    static constexpr std::uint64_t memory = 0x200;
    static constexpr std::uint64_t ports = 0x100;
    static constexpr std::uint64_t prefetchable = 0x2000;

    FakeCard() {
        set("vendor", "0x1af4");
        set("device", "0x1110");
        set("class", "0x050000");
        set("enable", "1");
    }

    const std::string& sysfs() const { return path(); }
    std::string folder() const { return path(local("")); }
    std::string file(const std::string& name) const { return path(local("/" + name)); }
    std::string id(std::uint32_t bar) const { return fmt::format("pci:{}/{}", address, bar); }

    void set(const std::string& name, const std::string& value) const {
        write(local("/" + name), value + "\n");
    }
    std::string get(const std::string& name) const {
        const std::string text = read(local("/" + name));
        return text.substr(0, text.find('\n'));
    }
    // Adds the BAR to `resource`, but no file.
    void describe(std::uint32_t bar, std::uint64_t first, std::uint64_t bytes,
                  std::uint64_t flags) {
        lines_[bar] = line(first, bytes == 0 ? 0 : first + bytes - 1, flags);
        write(local("/resource"), fmt::format("{}", fmt::join(lines_, "")));
    }
    // Adds a memory BAR with its file.
    void add(std::uint32_t bar, std::uint64_t bytes, bool write_combined = true) {
        describe(bar, 0xf0000000, bytes, memory | (write_combined ? prefetchable : 0));
        const std::string name = "resource" + std::to_string(bar);
        make(name, bytes);
        if (write_combined) make(name + "_wc", bytes);
    }
    void make(const std::string& name, std::uint64_t bytes) const {
        write(local("/" + name), "");
        std::filesystem::resize_file(file(name), bytes);
    }
    void bind(const std::string& driver) const {
        const std::string drivers = sysfs() + "/bus/pci/drivers/" + driver;
        std::filesystem::create_directories(drivers);
        std::filesystem::create_directory_symlink(drivers, file("driver"));
    }

 private:
    static std::string local(const std::string& name) {
        return std::string("bus/pci/devices/") + address + name;
    }
    static std::string line(std::uint64_t first, std::uint64_t last, std::uint64_t flags) {
        return fmt::format("{:#018x} {:#018x} {:#018x}\n", first, last, flags);
    }

    std::string lines_[6] = {line(0, 0, 0), line(0, 0, 0), line(0, 0, 0),
                             line(0, 0, 0), line(0, 0, 0), line(0, 0, 0)};
};

}  // namespace gpunbd::storage::test
