// How parallel file systems stripe a file, from the extended attributes in which they tell it.
//
// Pure functions of the attribute's value, whatever its bytes are: what they do not understand, or
// what says nothing of the whole file, is no layout.
#pragma once

#include <optional>
#include <string_view>

#include "core/op.h"

namespace forebay::posix {

// CephFS: "stripe_unit=65536 stripe_count=4 object_size=4194304 pool=data", as text. A file is a
// sequence of sets of stripe_count objects, and striped over the objects of each set. Where an
// object lies is the cluster's secret: targets are the objects of a set. With one of them, what one
// writer should have for itself is an object, which then is the stripe.
inline constexpr const char* kCephLayout = "ceph.file.layout";
std::optional<Layout> ceph_layout(std::string_view text);

// Lustre: lov_user_md, versions 1 and 3, in the byte order that its magic number shows. The first
// target is the index of the first object's OST. None for us is one without objects (released, on
// the MDT). A composite layout has other targets here than there: what is said of it is the size of
// stripes, as if there were one target, if they have the same size everywhere.
inline constexpr const char* kLustreLayout = "lustre.lov";
std::optional<Layout> lustre_layout(std::string_view bytes);

}  // namespace forebay::posix
