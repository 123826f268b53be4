# find_package(model CONFIG) with this folder in CMAKE_PREFIX_PATH gives the target model::model.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
if(NOT TARGET model::model)
  add_library(model::model SHARED IMPORTED)
  set_target_properties(model::model PROPERTIES
    IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/lib/libmodel.so"
    IMPORTED_IMPLIB "${CMAKE_CURRENT_LIST_DIR}/lib/model.lib" # of a DLL
    INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
endif()
